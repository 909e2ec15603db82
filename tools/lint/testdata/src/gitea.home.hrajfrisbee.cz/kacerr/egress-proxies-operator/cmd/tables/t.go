package tables

import "sync"

var table = map[string]int{"a": 1}

var count int

var once sync.Once // want "once is state of the package"

var done = make(chan struct{}) // want "done is state of the package"

type s struct{ n int }

var one s

// Max is the most.
const Max = 3

const Min = 1 // on the line

var Exported = 1 // on the line

var (
	Bare = 2
)

func init() {} // want "init runs before main"

func change() int {
	count++            // want "count is a package variable and must not change"
	table["b"] = 2     // want "table is a package variable and must not change"
	delete(table, "a") // want "table is a package variable and must not change"
	one.n = 3          // want "one is a package variable and must not change"
	table := map[string]int{}
	table["c"] = 1
	return table["c"]
}
