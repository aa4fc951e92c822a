module mizan.example/mizantable

go 1.19
