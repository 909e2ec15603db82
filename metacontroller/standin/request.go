package standin

import (
	"context"
	"fmt"

	"gitea.home.hrajfrisbee.cz/kacerr/egress-proxies-operator/metacontroller"
)

// ask calls the sync hook, or the finalize hook once the parent is being
// deleted. The latter also when our finalizer is already gone and another one
// holds the parent: hooks meet that with Metacontroller too.
func (c *controller) ask(ctx context.Context, parent *object, children, related objectMap) (*metacontroller.Response, error) {
	hook, finalizing := c.hooks.sync, false
	if c.hooks.finalize != nil && parent.GetDeletionTimestamp() != nil {
		hook, finalizing = c.hooks.finalize, true
	}
	request, err := c.request(parent, children, related, finalizing)
	if err != nil {
		return nil, err
	}
	var answer metacontroller.Response
	if err := hook.call(ctx, request, &answer); err != nil {
		return nil, err
	}
	if answer.Children == nil {
		c.log.Warn("the answer has no children list: every child is deleted", "hook", hook.name, "parent", describe(parent))
	}
	return &answer, nil
}

func (c *controller) request(parent *object, children, related objectMap, finalizing bool) (*metacontroller.Request, error) {
	encodedParent, err := parent.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", describe(parent), err)
	}
	encodedChildren, err := children.encode()
	if err != nil {
		return nil, err
	}
	encodedRelated, err := related.encode()
	if err != nil {
		return nil, err
	}
	return &metacontroller.Request{
		Controller: c.manifest,
		Parent:     encodedParent,
		Children:   encodedChildren,
		Related:    encodedRelated,
		Finalizing: finalizing,
	}, nil
}
