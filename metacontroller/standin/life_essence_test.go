package standin_test

import "strings"

// essence is what of an observation is the driver's doing: whose children are
// shown, what became of them, and what the test made of them. Texts, templates
// and hashes are the hooks' and change with them.
func essence(o observation) observation {
	keep := map[string]any{}
	for name, value := range o.Body {
		keep[name] = value
	}
	for _, group := range []string{"children", "related"} {
		kinds, ok := o.Body[group].(map[string]any)
		if !ok {
			continue
		}
		shown := map[string]any{}
		for kind, objects := range kinds {
			byName := map[string]any{}
			for name, object := range objects.(map[string]any) {
				byName[name] = pick(object, essentials(kind)...)
			}
			shown[kind] = byName
		}
		keep[group] = shown
	}
	atRest := pick(o.AtRest, "phase", "observedGeneration", "ip", "port", "instanceID")
	return observation{Step: o.Step, Hook: o.Hook, Body: keep, AtRest: atRest}
}

// essentials are the paths that count in an object of that kind.
func essentials(kind string) []string {
	common := []string{
		"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation",
		"metadata.ownerReferences", "metadata.labels", "metadata.deletionTimestamp",
	}
	switch kind {
	case "Pod.v1":
		return append(common, "spec.nodeName", "status.phase", "status.podIP")
	case "Secret.v1":
		return append(common, "data")
	}
	return append(common, "spec.instanceID", "spec.host", "spec.port", "spec.healthCheck.interval", "status.instanceID", "status.verdict")
}

// pick returns v with these paths alone.
func pick(v any, paths ...string) any {
	out := map[string]any{}
	for _, path := range paths {
		from, to := v, out
		fields := strings.Split(path, ".")
		for i, field := range fields {
			m, _ := from.(map[string]any)
			value, found := m[field]
			if !found {
				break
			}
			if i == len(fields)-1 {
				to[field] = value
				break
			}
			if to[field] == nil {
				to[field] = map[string]any{}
			}
			from, to = value, to[field].(map[string]any)
		}
	}
	return out
}
