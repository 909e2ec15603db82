package standin

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func unlabelled(obj *object) { obj.SetLabels(nil) }

func orphaned(obj *object) { obj.SetOwnerReferences(nil) }

func ownedByAnother(obj *object) {
	obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(proxy(func(p *object) { p.SetUID("another") }), proxy().GroupVersionKind())})
}

func TestClaimOf(t *testing.T) {
	tests := []struct {
		name   string
		parent *object
		child  *object
		want   claim
	}{
		{"owned", proxy(), pod("a"), ours},
		{"owned and dying", proxy(), pod("a", deleting), ours},
		{"owned by a dying parent", proxy(deleting), pod("a"), ours},
		{"owned, label taken off", proxy(), pod("a", unlabelled), release},
		{"the same under a dying parent", proxy(deleting), pod("a", unlabelled), notOurs},
		{"somebody else's", proxy(), pod("a", ownedByAnother), notOurs},
		{"an orphan with our label", proxy(), pod("a", orphaned), adopt},
		{"an orphan without", proxy(), pod("a", orphaned, unlabelled), notOurs},
		{"a dying orphan", proxy(), pod("a", orphaned, deleting), notOurs},
		{"an orphan, but we are dying", proxy(deleting), pod("a", orphaned), notOurs},
		{"our predecessor's", proxy(func(p *object) { p.SetUID("successor") }), pod("a"), notOurs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, claimOf(tt.parent, tt.child))
		})
	}
}

func TestClaimChildren(t *testing.T) {
	elsewhere := func(obj *object) { obj.SetNamespace("other") }
	h := newHarness(t, proxy(), pod("owned"), pod("drifted", unlabelled), pod("orphan", orphaned), pod("foreign", ownedByAnother), pod("elsewhere", elsewhere))
	children, err := h.claimChildren(h.ctx, proxy())
	require.NoError(t, err)

	require.Len(t, children, 2, "kinds without objects are present")
	pods := children[pod("x").GroupVersionKind()]
	require.Len(t, pods, 2)
	require.Contains(t, pods, "crawl/owned")
	require.Contains(t, pods, "crawl/orphan")
	require.Equal(t, []string{"update pods crawl/drifted", "update pods crawl/orphan"}, h.writes())
	require.Empty(t, h.live("pods", "drifted").GetOwnerReferences())
	owner := metav1.GetControllerOf(h.live("pods", "orphan"))
	require.NotNil(t, owner)
	require.Equal(t, parentID, owner.UID)
	require.True(t, *owner.BlockOwnerDeletion)
}

func TestNoAdoptionForADeletedParentInAStaleCache(t *testing.T) {
	for name, live := range map[string]*object{
		"deleted":  proxy(deleting),
		"replaced": proxy(func(p *object) { p.SetUID("successor") }),
	} {
		h := newHarness(t, live, pod("orphan", orphaned))
		_, err := h.claimChildren(h.ctx, proxy())
		require.ErrorContains(t, err, "adopt Pod crawl/orphan", name)
		require.Empty(t, h.writes(), name)
	}
}

func TestClaimErrorsAreReported(t *testing.T) {
	h := newHarness(t, proxy(), pod("drifted", unlabelled))
	h.failOn("update", "pods", errors.New("no"))
	_, err := h.claimChildren(h.ctx, proxy())
	require.ErrorContains(t, err, "claim pods")
}
