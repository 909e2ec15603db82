package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// family is a set of words that is counted together, per 1,000 words of comments.
type family struct {
	name  string
	words *regexp.Regexp
	goal  float64
	least bool // goal is a minimum
}

// The table of words. The first two families are a dialect that cannot be
// searched for; the third is what the field calls what this code does.
var families = []family{
	{name: "told, tells, says", goal: 1, words: wordsOf(`told|tells?|telling|says?|said|knows? of|knew of|hears? of|heard of`)},
	{name: "nobody, whoever, of which", goal: 0.3, words: wordsOf(`nobody|somebody|whoever|whomever|of which|of whom`)},
	{name: "retry, stale, drain, ...", goal: 3, least: true, words: wordsOf(
		`retr(?:y|ies|ied|ying)|back-?off|backs? off|time-?outs?|timed out|times out|stale(?:ness)?|cache[sd]?|caching|` +
			`reconcil(?:e|es|ed|ing|iation)|drain(?:s|ed|ing)?|evict(?:s|ed|ion|ing)?|idempoten(?:t|ce|cy)|snapshots?|` +
			`requeue[sd]?|throttl(?:e|es|ed|ing)|rate limit(?:s|ed|er|ing)?|jitter|rollback|roll(?:s|ed)? back`)},
}

// avoided are the families with a maximum.
var avoided = []family{families[0], families[1]}

var word = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)

func wordsOf(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`)
}

// tally counts words of one room.
type tally struct {
	words int
	found [3]int
}

func (t *tally) add(text string) {
	t.words += len(word.FindAllString(text, -1))
	for i, f := range families {
		t.found[i] += len(f.words.FindAllString(text, -1))
	}
}

func (t *tally) per1000(i int) float64 { return 1000 * float64(t.found[i]) / float64(max(1, t.words)) }

// minWords is how many words a room needs for the minimum to mean something.
const minWords = 5000

// reportWords prints the table of words and returns what is past its goal.
func reportWords(out io.Writer, files []file) []string {
	rooms := map[string]*tally{"all": {}}
	for _, f := range files {
		room := f.room()
		if rooms[room] == nil {
			rooms[room] = &tally{}
		}
		for _, c := range f.comments {
			rooms[room].add(c.text)
			rooms["all"].add(c.text)
		}
	}
	fmt.Fprintf(out, "%-16s %8s", "per 1,000 words", "words")
	for _, f := range families {
		fmt.Fprintf(out, "  %s", f.name)
	}
	fmt.Fprintln(out)
	var problems []string
	for _, room := range sortedKeys(rooms) {
		t := rooms[room]
		fmt.Fprintf(out, "%-16s %8d", room, t.words)
		for i, f := range families {
			fmt.Fprintf(out, "  %*.2f", len(f.name), t.per1000(i))
			if p := f.past(room, t, t.per1000(i)); p != "" {
				problems = append(problems, p)
			}
		}
		fmt.Fprintln(out)
	}
	return problems
}

func (f family) past(room string, t *tally, got float64) string {
	switch {
	case !f.least && got > f.goal:
		return fmt.Sprintf("%s: %.2f of %q in 1,000 words of comments, want <= %.1f; `go run -C tools ./rooms -list %s` lists them", room, got, f.name, f.goal, room)
	case f.least && got < f.goal && t.words >= minWords:
		return fmt.Sprintf("%s: %.2f of %q in 1,000 words of comments, want >= %.1f; use the field's terms of docs/glossary.md", room, got, f.name, f.goal)
	}
	return ""
}

// listWords prints the comment lines under folder that have a word to avoid.
func listWords(out io.Writer, files []file, folder string) {
	for _, f := range files {
		if f.path != folder && !strings.HasPrefix(f.path, strings.TrimSuffix(folder, "/")+"/") {
			continue
		}
		for _, c := range f.comments {
			if slices.ContainsFunc(avoided, func(fam family) bool { return fam.words.MatchString(c.text) }) {
				fmt.Fprintf(out, "%s:%d: %s\n", f.path, c.line, strings.TrimSpace(c.text))
			}
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
