package witness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/history"
)

const (
	watchTime  = 2 * time.Minute        // the timeout of one watch; the next one resumes from its version
	retryPause = 200 * time.Millisecond // between a failure and the retry
)

// recorded are the watch events to record, which bookmarks are not.
var recorded = map[watch.EventType]history.Change{
	watch.Added: history.Added, watch.Modified: history.Modified, watch.Deleted: history.Deleted,
}

// watcher observes all objects of one resource.
type watcher struct {
	cfg      *Config
	resource schema.GroupVersionResource
	client   dynamic.ResourceInterface
	gap      gap
	// known is the current objects, by namespace/name.
	known   map[string]history.Object
	version string // to resume from; "" means list
}

func newWatchers(cfg *Config) ([]*watcher, error) {
	kube := rest.CopyConfig(cfg.Kube)
	kube.QPS = -1 // few requests, which must not be throttled after outages
	kube.Dial = (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 10 * time.Second}).DialContext
	client, err := dynamic.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("witness: client of the API server: %w", err)
	}
	var out []*watcher
	for _, r := range []schema.GroupVersionResource{
		v1alpha1.ProxyResource(), v1alpha1.ProxyProbeResource(),
		{Version: "v1", Resource: "pods"},
	} {
		out = append(out, &watcher{
			cfg: cfg, resource: r, client: client.Resource(r).Namespace(cfg.Namespace),
			gap: gap{observer: r.Resource, recorder: cfg.Recorder}, known: map[string]history.Object{},
		})
	}
	return out, nil
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			break
		}
		if err == nil { // the watch timed out as requested
			continue
		}
		w.gap.fail(err)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			w.version = ""
		}
		select {
		case <-ctx.Done():
		case <-w.cfg.Clock.After(retryPause):
		}
	}
	w.gap.ok()
}

// follow lists if necessary and then watches until the watch ends.
func (w *watcher) follow(ctx context.Context) error {
	if w.version == "" {
		if err := w.list(ctx); err != nil {
			return err
		}
	}
	seconds := int64(watchTime / time.Second)
	events, err := w.client.Watch(ctx, metav1.ListOptions{
		ResourceVersion: w.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	w.gap.ok()
	began := w.cfg.Clock.Now()
	for event := range events.ResultChan() {
		if err := w.take(event); err != nil {
			return err
		}
	}
	if w.cfg.Clock.Since(began) < watchTime-time.Second {
		return errors.New("the watch ended early")
	}
	return nil
}

func (w *watcher) take(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	u, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("watch event with a %T", event.Object)
	}
	w.version = u.GetResourceVersion()
	w.gap.ok()
	if change, known := recorded[event.Type]; known {
		return w.seen(u, change)
	}
	return nil
}

// list records the objects that are new, changed or missing since the last event.
func (w *watcher) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := w.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for i := range all.Items {
		u := &all.Items[i]
		name := u.GetNamespace() + "/" + u.GetName()
		there[name] = true
		before, known := w.known[name]
		switch {
		case !known:
			err = w.seen(u, history.Added)
		case before.UID != string(u.GetUID()):
			w.vanished(before)
			err = w.seen(u, history.Added)
		case before.ResourceVersion != u.GetResourceVersion():
			err = w.seen(u, history.Modified)
		}
		if err != nil {
			return err
		}
	}
	for name, before := range w.known {
		if !there[name] {
			w.vanished(before)
		}
	}
	w.version = all.GetResourceVersion()
	w.gap.ok()
	return nil
}

func (w *watcher) vanished(before history.Object) {
	before.Stamp, before.Change = history.Stamp{}, history.Vanished
	delete(w.known, before.Name)
	w.cfg.Recorder.Add(history.Record{Object: &before})
}

func (w *watcher) seen(u *unstructured.Unstructured, change history.Change) error {
	o, err := object(u)
	if err != nil {
		return err
	}
	o.Change = change
	if change == history.Deleted {
		delete(w.known, o.Name)
	} else {
		w.known[o.Name] = o
	}
	w.cfg.Recorder.Add(history.Record{Object: &o})
	return nil
}
