package walk

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRenderShowsWhatKubectlShows(t *testing.T) {
	table := &metav1.Table{
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name"}, {Name: "Reason", Priority: 1}, {Name: "Age"}},
		Rows: []metav1.TableRow{
			{Cells: []any{"berlin", nil, "3s"}},
			{Cells: []any{"paris", "ConnectTimeout", "12s"}},
		},
	}
	assert.Equal(t, "NAME     AGE\nberlin   3s\nparis    12s\n", render(table, false))
	assert.Equal(t, "NAME     REASON           AGE\nberlin                    3s\nparis    ConnectTimeout   12s\n", render(table, true))
}
