package gc

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
)

// pageSize of a list of Proxies.
const pageSize = 500

// APIServer lists Proxies from the API server itself, never from a cache: what a
// cache does not show yet would be an orphan.
type APIServer struct {
	// Client reads the metadata of Proxies.
	Client metadata.Interface
	// Namespace to look at, empty for all.
	Namespace string
}

// UIDs returns the UIDs of all Proxies. Without a resource version the API
// server reads from its store, at one moment for all pages; a page that comes
// too late fails the whole list.
func (a APIServer) UIDs(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := a.Client.Resource(v1alpha1.ProxyResource()).Namespace(a.Namespace).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("list Proxies: %w", err)
		}
		for _, p := range page.Items {
			out[string(p.UID)] = true
		}
		if page.Continue == "" {
			return out, nil
		}
		opts.Continue = page.Continue
	}
}
