package fault

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/api/v1alpha1"
	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/stack/chaos/plan"
)

// A delete without a response may take effect: its fault is recorded.
func TestDeleteOfAPodWithoutAResponseIsUncertain(t *testing.T) {
	p := &v1alpha1.Proxy{}
	p.Status.ProviderID = "default/proxy-x"
	for name, tt := range map[string]struct {
		err       error
		uncertain bool
	}{
		"no response":        {context.DeadlineExceeded, true},
		"connection refused": {syscall.ECONNREFUSED, false},
		"no such Pod":        {apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "proxy-x"), false},
	} {
		kube := fake.NewClientset()
		kube.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
		err := (&Lab{Kube: kube}).endInstance(t.Context(), p, plan.InstanceDelete)
		require.ErrorIs(t, err, tt.err, name)
		assert.Equal(t, tt.uncertain, errors.Is(err, errUncertain), name)
	}
}
