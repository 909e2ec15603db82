package stack

import (
	"errors"
	"fmt"
	"os"
)

// Scratch is a folder for what a stack's users start beside it. It goes as stacks'
// folders do: whoever was killed before removing it, the next stack removes it.
type Scratch struct{ folder *folder }

// NewScratch makes a folder that only we can enter, in home, which is Config.Home.
// Its path is short, as those of sockets must be.
func NewScratch(home string) (*Scratch, error) {
	f, err := newFolder(home)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(f.path, 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("close the folder to others: %w", err), f.remove())
	}
	return &Scratch{folder: f}, nil
}

// Path of the folder.
func (s *Scratch) Path() string { return s.folder.path }

// Remove removes the folder and all in it.
func (s *Scratch) Remove() error { return s.folder.remove() }
