// Package soaktest samples figures of a process during long work and finds those that
// grow.
package soaktest

import (
	"errors"
	"fmt"
	"io"
)

// Tolerance is the share of its mean by which a figure may grow over the second half of
// the work.
const Tolerance = 0.05

// minSamples is how many samples the second half must have for a slope to mean
// something.
const minSamples = 5

// Figure is something that must not grow.
type Figure struct {
	Name  string  // with its unit
	Value float64 // now
	Slack float64 // the absolute growth that is allowed besides
}

// sample is all figures at one moment.
type sample struct {
	done    int
	figures []Figure
}

// Course is the samples of one run.
type Course struct {
	// Out gets a line for each sample when it is taken; nil for none.
	Out io.Writer

	samples []sample
}

// Note adds a sample after done pieces of work. All samples have the same figures in the
// same order.
func (c *Course) Note(done int, figures ...Figure) {
	c.samples = append(c.samples, sample{done: done, figures: figures})
	if c.Out == nil {
		return
	}
	line := ""
	if len(c.samples) == 1 {
		line = fmt.Sprintf("%9s", "done")
		for _, f := range figures {
			line += fmt.Sprintf("%13s", f.Name)
		}
		line += "\n"
	}
	line += fmt.Sprintf("%9d", done)
	for _, f := range figures {
		line += fmt.Sprintf("%13.2f", f.Value)
	}
	_, _ = fmt.Fprintln(c.Out, line) // for people who look on
}

// Flat returns nil when no figure grew over the second half of the work by more
// than Tolerance of its mean, or its slack if that is more. Growth is that of the
// line that fits best, so that a figure may go up and down.
func (c *Course) Flat() error {
	half := c.samples[len(c.samples)/2:]
	if len(half) < minSamples {
		return fmt.Errorf("the second half of the work has %d samples, and fewer than %d say nothing", len(half), minSamples)
	}
	var errs []error
	for i, f := range half[0].figures {
		mean, growth := trend(half, i)
		allowed := max(Tolerance*mean, f.Slack)
		if growth > allowed {
			errs = append(errs, fmt.Errorf("%s grew by %.6g over the second half of the work, at a mean of %.6g; %.6g is taken for flat", f.Name, growth, mean, allowed))
		}
	}
	return errors.Join(errs...)
}

// trend fits a line through figure i by least squares, and returns the mean and by
// how much the line rises from the first sample to the last.
func trend(samples []sample, i int) (mean, growth float64) {
	var x, y float64
	for _, s := range samples {
		x += float64(s.done)
		y += s.figures[i].Value
	}
	n := float64(len(samples))
	x, mean = x/n, y/n
	var above, below float64
	for _, s := range samples {
		d := float64(s.done) - x
		above += d * (s.figures[i].Value - mean)
		below += d * d
	}
	if below == 0 {
		return mean, 0
	}
	return mean, above / below * float64(samples[len(samples)-1].done-samples[0].done)
}
