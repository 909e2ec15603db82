package standin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// watched is a running informer.
type watched struct {
	store cache.Indexer
	// synced reports whether the store is filled and the handler has seen all
	// that is in it.
	synced cache.InformerSynced
}

// watcher starts informers, some of them long after the engine started, and
// waits for all of them when it stops.
type watcher struct {
	// ctx ends when the engine stops. It is kept because informers outlive the
	// sync that asks for them.
	ctx    context.Context
	client dynamic.Interface
	log    *slog.Logger
	wg     sync.WaitGroup
}

// start watches all objects of res, in all namespaces, without periodic
// re-lists.
func (w *watcher) start(res *resource, indexers cache.Indexers, handler cache.ResourceEventHandler) *watched {
	informer := dynamicinformer.NewFilteredDynamicInformer(w.client, res.gvr, "", 0, indexers, nil).Informer()
	log := w.log.With("resource", res.gvr.GroupResource().String())
	watchErr := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { logWatchError(log, err) })
	registration, err := informer.AddEventHandler(handler)
	if err := errors.Join(watchErr, err); err != nil {
		// Only for an informer that runs or has run already.
		panic(fmt.Sprintf("watch %s: %v", res.gvr, err))
	}
	w.wg.Go(func() { informer.RunWithContext(w.ctx) })
	return &watched{store: informer.GetIndexer(), synced: registration.HasSynced}
}

// logWatchError reports what keeps an informer from its objects, such as
// missing permissions. Watches that time out are everyday life.
func logWatchError(log *slog.Logger, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		log.Debug("watch ended", "err", err)
		return
	}
	log.Warn("watch failed, retrying", "err", err)
}
