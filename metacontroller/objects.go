package metacontroller

import (
	"encoding/json"
	"fmt"
)

// Objects are the children or related objects of a parent: first by
// "Kind.version" or "Kind.group/version", then by "namespace/name". Every
// configured kind is present, also when there are none of it.
type Objects map[string]map[string]json.RawMessage

// Key is the key of an object within Objects: namespace/name, or the name alone
// for an object without namespace.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// readObjects reads a member of a request, whose objects it leaves encoded. A
// null is nil.
func readObjects(s *scanner, field string) (Objects, error) {
	if s.isNull() {
		return nil, s.skip()
	}
	if !s.isObject() {
		return nil, notAnObject(field)
	}
	out := Objects{}
	return out, s.object(func(kind string) (err error) {
		if out[kind], err = readKind(s); err != nil {
			return fmt.Errorf("%s[%q]%w", field, kind, err)
		}
		return nil
	})
}

func readKind(s *scanner) (map[string]json.RawMessage, error) {
	if s.isNull() {
		return nil, s.skip()
	}
	if !s.isObject() {
		return nil, notAnObject("")
	}
	out := map[string]json.RawMessage{}
	return out, s.object(func(key string) (err error) {
		if out[key], err = readEntry(s, key); err != nil {
			return fmt.Errorf("[%q]%w", key, err)
		}
		return nil
	})
}

// readEntry refuses a key that is not that of its object: hook v1 keys a
// namespaced child by its bare name, where a look-up by namespace/name would
// find nothing and take a child for missing.
func readEntry(s *scanner, key string) (json.RawMessage, error) {
	if !s.isObject() {
		return nil, notAnObject("")
	}
	start := s.at
	namespace, name, err := readIdentity(s)
	if err != nil {
		return nil, fmt.Errorf(": %w", err)
	}
	if want := Key(namespace, name); key != want {
		return nil, fmt.Errorf(": holds %q: all three hooks of the CompositeController must say version: v2", want)
	}
	return s.text[start:s.at:s.at], nil
}

// readIdentity reads an object and returns its namespace and name.
func readIdentity(s *scanner) (namespace, name string, err error) {
	err = s.object(func(field string) error {
		if field != "metadata" {
			return s.skip()
		}
		if !s.isObject() {
			return notAnObject("metadata")
		}
		return s.object(func(field string) error {
			switch field {
			case "namespace":
				return readInto(s, &namespace)
			case "name":
				return readInto(s, &name)
			}
			return s.skip()
		})
	})
	return namespace, name, err
}
