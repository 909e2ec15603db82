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

// APIServer lists Proxies from the API server, never from a cache: a Proxy that a
// stale cache does not contain would look like an orphan.
type APIServer struct {
	Client    metadata.Interface // reads the metadata of Proxies
	Namespace string             // to list, empty for all
}

// UIDs returns the UIDs of all Proxies. Without a resource version the API server
// reads all pages from its store at one revision; an expired page fails the whole
// list.
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
