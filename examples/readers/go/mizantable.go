// Command mizantable reads Mizan's routing table from shared memory: no network, no lock, never half of a table.
//
//	table, err := Open("/dev/shm/mizan/routing.snap", -1)
//	table.Get("settings/ko")            // the document's JSON, or nil
//	table.Factor("kr", "kpop", now)     // what the pool's weight is multiplied by
//
// The writer puts a new file in the old one's place, so a file that was opened is whole and never changes. A file that does
// not hold what its checksums say is not used: what was read before stays. The format stands in crates/store/src/image.rs.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const header = 64

// Table is the table in a file, as it was when it was last looked at. One goroutine uses it.
type Table struct {
	Revision, WrittenMs uint64
	path                string
	owner               int
	seen                os.FileInfo
	body                []byte
	json                uint32
}

// Open reads the table. owner is the number of the user who may write it; -1: whoever owns its folder.
func Open(path string, owner int) (*Table, error) {
	table := &Table{path: path, owner: owner}
	_, err := table.Refresh()
	return table, err
}

// Refresh looks whether there is a new file: one stat where there is none. True if the table has become another.
func (t *Table) Refresh() (bool, error) {
	found, err := os.Lstat(t.path)
	if err != nil {
		return false, err
	}
	if t.seen != nil && os.SameFile(t.seen, found) && t.seen.ModTime() == found.ModTime() && t.seen.Size() == found.Size() {
		return false, nil
	}
	if err := t.read(); err != nil {
		return false, err
	}
	t.seen = found
	return true, nil
}

// Get gives a key's document as JSON; nil if there is none.
func (t *Table) Get(key string) []byte {
	at := sort.Search(t.Len(), func(at int) bool { return bytes.Compare(t.span(at, 0), []byte(key)) >= 0 })
	if at == t.Len() || string(t.span(at, 0)) != key {
		return nil
	}
	return t.span(at, 1)
}

// Len is how many keys there are.
func (t *Table) Len() int { return (len(t.body) - int(t.json)) / 16 }

// Key is the key at a place, in their order.
func (t *Table) Key(at int) string { return string(t.span(at, 0)) }

// Factor is the product of the pool's boosts that have not ended, from 0.1 to 10: they end by the clock, whatever the file says.
func (t *Table) Factor(region, pool string, now time.Time) float64 {
	factor := 1.0
	for at := 0; at < t.Len(); at++ {
		var boost struct {
			Factor float64 `json:"factor"`
			End    int64   `json:"expires_at_ms"`
		}
		if strings.HasPrefix(t.Key(at), "boosts/"+region+"/"+pool+"/") && json.Unmarshal(t.span(at, 1), &boost) == nil && boost.End > now.UnixMilli() {
			factor *= boost.Factor
		}
	}
	if factor < 0.1 {
		return 0.1
	}
	if factor > 10 {
		return 10
	}
	return factor
}

func (t *Table) read() error {
	file, err := os.OpenFile(t.path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := t.checkOwner(file); err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	number := binary.LittleEndian
	if len(data) < header {
		return errors.New("it is cut")
	}
	if string(data[:8]) != "MIZANTAB" || number.Uint16(data[8:]) != 1 {
		return errors.New("it is no table of format 1")
	}
	if crc32.ChecksumIEEE(data[:60]) != number.Uint32(data[60:]) {
		return errors.New("its header is damaged")
	}
	start, length, end := number.Uint32(data[12:]), number.Uint32(data[40:]), number.Uint32(data[44:])
	if uint64(start)+uint64(length) > uint64(len(data)) || end > length || (length-end)%16 != 0 {
		return errors.New("its body is cut")
	}
	body := data[start : start+length]
	if crc32.ChecksumIEEE(body) != number.Uint32(data[48:]) {
		return errors.New("its body is damaged")
	}
	t.body, t.json = body, end
	t.Revision, t.WrittenMs = number.Uint64(data[16:]), number.Uint64(data[32:])
	return nil
}

func (t *Table) checkOwner(file *os.File) error {
	found, err := file.Stat()
	if err != nil {
		return err
	}
	owner := t.owner
	if owner < 0 {
		folder, err := os.Stat(filepath.Dir(t.path))
		if err != nil {
			return err
		}
		owner = int(folder.Sys().(*syscall.Stat_t).Uid)
	}
	is := int(found.Sys().(*syscall.Stat_t).Uid)
	if is != owner || found.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("it belongs to user %d with mode %o: others could have written it", is, found.Mode().Perm())
	}
	return nil
}

func (t *Table) span(at, which int) []byte {
	place := t.body[int(t.json)+16*at+8*which:]
	start := binary.LittleEndian.Uint32(place)
	return t.body[start : start+binary.LittleEndian.Uint32(place[4:])]
}

// line has the fields in order, as every reader prints them.
func line(document []byte) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if document == nil || decoder.Decode(&value) != nil {
		return "null"
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(value)
	return strings.TrimSpace(out.String())
}

// torture reads so many times while somebody writes; every document of a table holds the table's revision, or it is torn.
func torture(table *Table, reads int) {
	torn, changes := 0, 0
	for count := 0; count < reads; count++ {
		before := table.Revision
		changed, err := table.Refresh()
		if changed {
			changes++
		}
		is := func(key string) bool {
			var document struct {
				At uint64 `json:"at"`
			}
			return json.Unmarshal(table.Get(key), &document) == nil && document.At == table.Revision
		}
		if err != nil || !is(table.Key(0)) || !is(table.Key(table.Len()-1)) || table.Revision < before {
			torn++
		}
	}
	fmt.Printf("{\"reads\":%d,\"changes\":%d,\"torn\":%d}\n", reads, changes, torn)
}

func main() {
	path, keys := os.Args[1], os.Args[2:]
	table, err := Open(path, -1)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		os.Exit(1)
	}
	if len(keys) == 2 && keys[0] == "--torture" {
		reads, _ := strconv.Atoi(keys[1])
		torture(table, reads)
		return
	}
	if len(keys) == 0 {
		fmt.Print(table.Revision)
		for at := 0; at < table.Len(); at++ {
			fmt.Print(" ", table.Key(at))
		}
		fmt.Println()
	}
	for _, key := range keys {
		fmt.Println(line(table.Get(key)))
	}
}
