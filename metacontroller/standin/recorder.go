package standin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// newRecorder returns a recorder that writes events best-effort: repeated ones
// are counted up and too many are dropped. stop ends it.
func newRecorder(ctx context.Context, config *rest.Config) (recorder record.EventRecorder, stop func(), err error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("events client: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	// The scheme stays empty: our objects carry their kinds.
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "local-engine"}), broadcaster.Shutdown, nil
}
