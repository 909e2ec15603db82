package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	before = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	later  = before.Add(time.Hour)
)

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason}
}

func TestSetConditionTransitionTime(t *testing.T) {
	old := SetCondition(nil, condition(ConditionHealthy, metav1.ConditionFalse, "DialFailed"), before)
	for name, tc := range map[string]struct {
		old  []metav1.Condition
		next metav1.Condition
		want time.Time
	}{
		"the first":             {nil, condition(ConditionHealthy, metav1.ConditionTrue, "R"), later},
		"another type's":        {old, condition(ConditionProvisioned, metav1.ConditionFalse, "R"), later},
		"status changes":        {old, condition(ConditionHealthy, metav1.ConditionTrue, "R"), later},
		"status to Unknown":     {old, condition(ConditionHealthy, metav1.ConditionUnknown, "R"), later},
		"reason changes":        {old, condition(ConditionHealthy, metav1.ConditionFalse, "Timeout"), before},
		"nothing changes":       {old, condition(ConditionHealthy, metav1.ConditionFalse, "DialFailed"), before},
		"the old one had none":  {[]metav1.Condition{condition(ConditionHealthy, metav1.ConditionFalse, "R")}, condition(ConditionHealthy, metav1.ConditionFalse, "R"), later},
		"the new one brings it": {old, metav1.Condition{Type: ConditionHealthy, Status: metav1.ConditionTrue, LastTransitionTime: stamp(before)}, later},
	} {
		t.Run(name, func(t *testing.T) {
			got := meta.FindStatusCondition(SetCondition(tc.old, tc.next, later), tc.next.Type)
			require.NotNil(t, got)
			assert.Equal(t, stamp(tc.want), got.LastTransitionTime)
			assert.Equal(t, tc.next.Reason, got.Reason)
			assert.Equal(t, tc.next.Status, got.Status)
		})
	}
}

func TestSetConditionKeepsPlaces(t *testing.T) {
	list := SetCondition(nil, condition("A", metav1.ConditionTrue, "1"), before)
	list = SetCondition(list, condition("B", metav1.ConditionTrue, "1"), before)
	list = SetCondition(list, condition("A", metav1.ConditionFalse, "2"), later)
	require.Len(t, list, 2)
	assert.Equal(t, "A", list[0].Type)
	assert.Equal(t, "2", list[0].Reason)
	assert.Equal(t, "B", list[1].Type)
}

func TestSetConditionLeavesItsArgumentAlone(t *testing.T) {
	list := SetCondition(nil, condition("A", metav1.ConditionTrue, "1"), before)
	SetCondition(list, condition("A", metav1.ConditionFalse, "2"), later)
	assert.Equal(t, "1", list[0].Reason)
}

// Metacontroller writes a status that differs and then reconciles again: a status
// that changes with the clock would be reconciled for ever.
func TestSetConditionWithoutATransitionGivesTheSameBytesAtAnyTime(t *testing.T) {
	stored := SetCondition(nil, condition("A", metav1.ConditionTrue, "1"), before)
	want, err := json.Marshal(stored)
	require.NoError(t, err)
	local := time.FixedZone("elsewhere", 5*60*60)
	for _, now := range []time.Time{before, later, before.Add(-time.Hour), before.In(local), later.Add(123 * time.Nanosecond), {}} {
		// Through JSON, as a hook gets it back.
		var observed []metav1.Condition
		require.NoError(t, json.Unmarshal(want, &observed))
		got, err := json.Marshal(SetCondition(observed, condition("A", metav1.ConditionTrue, "1"), now))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), now.String())
	}
}
