package values

const (
	Seventh, // want "Seventh is exported and has no comment"
	eighth = 7, 8
)
