package fault

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// socket takes the adapter's socket away and puts it back.
type socket struct{ path string }

func (s *socket) Window() history.Fault {
	return history.Fault{Family: history.AdapterSocket, Subject: plan.Cloud}
}

func (s *socket) Inject(context.Context) (Heal, error) {
	away := s.path + ".away"
	if err := os.Rename(s.path, away); err != nil {
		return nil, fmt.Errorf("take the adapter's socket away: %w", err)
	}
	return func(context.Context) error {
		// An adapter that started meanwhile has made another.
		err := os.Link(away, s.path)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("put the adapter's socket back: %w", err)
		}
		return os.Remove(away)
	}, nil
}
