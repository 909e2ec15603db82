package values

const Bare = 1 // on its line

const (
	Second = 1 // on its line
	Third  = 2 /* on its line */

	// Fourth has one above.
	Fourth = 3
)

// Group has one for all.
const (
	Fifth = 5
	Sixth = 6
)

var private = 1
