package walk

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// events waits until people are told of a proxy what happened to it, and shows all
// that they are told.
func (w *walker) events(ctx context.Context, proxy string, reasons ...string) error {
	p, err := w.proxy(ctx, proxy)
	if err != nil {
		return err
	}
	about := fmt.Sprintf("involvedObject.uid=%s", p.UID)
	if _, err := await(ctx, patience, func(ctx context.Context) error { return w.told(ctx, about, reasons) }); err != nil {
		return fmt.Errorf("events of %s: %w", proxy, err)
	}
	table, err := w.tables.get(ctx, "/api/v1", "events", w.stack.Namespace, about, false)
	if err != nil {
		return err
	}
	w.printRows("kubectl get events --field-selector involvedObject.name="+proxy, table)
	return nil
}

// told returns nil when there are Events with all of the reasons.
func (w *walker) told(ctx context.Context, about string, reasons []string) error {
	list, err := w.cluster.CoreV1().Events(w.stack.Namespace).List(ctx, metav1.ListOptions{FieldSelector: about})
	if err != nil {
		return fmt.Errorf("list them: %w", err)
	}
	var got []string
	for _, e := range list.Items {
		got = append(got, e.Reason)
	}
	for _, want := range reasons {
		if !slices.Contains(got, want) {
			return fmt.Errorf("want one with the reason %s, have %v", want, got)
		}
	}
	return nil
}
