package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// Factory makes a policy from its parameters, which are strings, int, float64, bool, nil, []any and map[string]any.
// Load and Parse call it once for each policy of its type, in the caller's goroutine. If the Factory returns an error,
// they report it with the line of the policy. They also report an error of the policy's method Validate() error, if the
// policy has this method.
type Factory func(params map[string]any) (backoff.RedeliveryBackoff, error)

// Policy is a custom policy type, for Load and Parse, which refuse the zero value.
type Policy struct {
	name    string
	factory Factory
}

// NewPolicy returns a Policy for a custom policy type, which a file may use in two forms:
//
//	policies:
//	  short: {type: fibonacci, unit: 1s}
//	  long:  {className: fibonacci, params: {unit: 1s}}
//
// In both forms, factory is called with the parameters {"unit": "1s"}; see Factory. A panic of factory reaches the
// caller of Load or Parse. Load and Parse return an error if the name is empty or that of a built-in type or class,
// or if factory is nil. The className in the file must be exactly this name: Load and Parse remove no package from
// it. The commands of redelivery do not know custom policies: they assume a delay of one minute, and say so.
func NewPolicy(name string, factory Factory) Policy {
	return Policy{name, factory}
}

var policyKeys = []string{"type", "min", "max", "multiplier", "jitter", "levels", "delay", "className", "params"}

// javaMin is the Java classes' default of minDelayMs. Their other defaults are those of
// backoff.Exponential.
const javaMin = 10 * time.Second

func factoriesOf(custom []Policy) (map[string]Factory, error) {
	factories := make(map[string]Factory, len(custom))
	for _, p := range custom {
		switch {
		case p.name == "" || p.factory == nil:
			return nil, fmt.Errorf("config: policy %q has no name or no factory, want both", p.name)
		case slices.Contains(policies.TypeNames, p.name) || policies.IsClass(p.name):
			return nil, fmt.Errorf("config: policy %q is built in, want another name", p.name)
		case factories[p.name] != nil:
			return nil, fmt.Errorf("config: policy %q is given twice, want it once", p.name)
		}
		factories[p.name] = p.factory
	}
	return factories, nil
}

// policy reads a policy that has a type or a className. It returns nil after an error.
func (d *decoder) policy(n *node) backoff.RedeliveryBackoff {
	before := len(d.errs)
	values := d.fields(n)
	var b backoff.RedeliveryBackoff
	switch {
	case len(d.errs) > before:
	case values["className"] != nil:
		b = d.class(n, values)
	case values["type"] != nil:
		b = d.typed(n, values)
	default:
		d.missing(n, "type", "one of %s, or a className", d.among(policies.TypeNames))
	}
	if len(d.errs) > before {
		return nil
	}
	if err := policies.Validate(b); err != nil {
		d.errs = append(d.errs, wrong(n.at, n.path(), "is wrong: %w", err))
		return nil
	}
	return b
}

func (d *decoder) among(names []string) string {
	return strings.Join(append(slices.Clone(names), slices.Sorted(maps.Keys(d.factories))...), ", ")
}

// typed reads {type: exponential, min: 1s, …}.
func (d *decoder) typed(n *node, values map[string]*node) backoff.RedeliveryBackoff {
	var b backoff.RedeliveryBackoff
	switch name := d.text(values["type"]); name {
	case "exponential":
		d.fields(n, "type", "min", "max", "multiplier", "jitter")
		min := d.duration(values["min"], 1)
		max := d.duration(values["max"], cmp.Or(min, time.Second))
		b = backoff.Exponential{Min: min, Max: max, Multiplier: d.multiplier(values["multiplier"])}
	case "levels":
		d.fields(n, "type", "levels", "jitter")
		b = d.levels(n, values["levels"])
	case "fixed":
		d.fields(n, "type", "delay", "jitter")
		if values["delay"] == nil {
			d.missing(n, "delay", `a duration, such as "30s"`)
		}
		b = backoff.Fixed(d.duration(values["delay"], 0))
	default:
		if factory := d.factories[name]; factory != nil {
			params := n.value().(map[string]any)
			delete(params, "type")
			return d.custom(n, factory, params)
		}
		d.fail(values["type"], "one of %s", d.among(policies.TypeNames))
		return nil
	}
	if jitter := values["jitter"]; jitter != nil {
		b = backoff.WithJitter(b, d.number(jitter, "from 0 to 1", func(v float64) bool { return v >= 0 && v <= 1 }))
	}
	return b
}

func (d *decoder) multiplier(n *node) float64 {
	return d.number(n, "above 1", func(v float64) bool { return v > 1 })
}

func (d *decoder) levels(policy, n *node) backoff.RedeliveryBackoff {
	if n == nil {
		d.missing(policy, "levels", `delays, such as "1s 5s 10s"`)
		return nil
	}
	text := d.textLike(n, `a text such as "1s 5s 10s"`)
	levels, err := backoff.ParseDelayLevels(text)
	if err != nil && text != "" {
		d.errs = append(d.errs, wrong(n.at, n.path(), "is %s: %w", n, err))
	}
	return levels
}

// class reads PIP-106's {className: …, params: …}.
func (d *decoder) class(n *node, values map[string]*node) backoff.RedeliveryBackoff {
	d.fields(n, "className", "params")
	name, params := d.text(values["className"]), d.params(values["params"])
	if factory := d.factories[name]; factory != nil {
		given := map[string]any{}
		if params != nil {
			given = params.value().(map[string]any)
		}
		return d.custom(n, factory, given)
	}
	if !policies.IsClass(name) {
		if name != "" {
			d.fail(values["className"], "one of %s", d.among(policies.ClassNames))
		}
		return nil
	}
	p := d.fields(params, "minDelayMs", "maxDelayMs", "multiplier")
	min := javaMin
	if p["minDelayMs"] != nil {
		min = d.milliseconds(p["minDelayMs"], time.Millisecond)
	}
	max := d.milliseconds(p["maxDelayMs"], min)
	return backoff.Exponential{Min: min, Max: max, Multiplier: d.multiplier(p["multiplier"])}
}

// params reads parameters, which are a map or a JSON object in a string. It returns nil if there are none.
func (d *decoder) params(n *node) *node {
	switch {
	case n == nil || n.isEmpty():
		return nil
	case n.kind == yaml.MappingNode:
		return n
	case n.kind == yaml.ScalarNode && json.Valid([]byte(n.text)):
		tree, errs := parseTree([]byte(n.text), &node{parent: n.parent, name: n.name}, func(int) string { return n.at })
		d.errs = append(d.errs, errs...)
		if tree != nil && tree.kind == yaml.MappingNode {
			return tree
		}
		if len(errs) > 0 {
			return nil
		}
	}
	d.fail(n, "a map, or a JSON object in a string")
	return nil
}

// custom makes a policy of a custom type.
func (d *decoder) custom(n *node, factory Factory, params map[string]any) backoff.RedeliveryBackoff {
	b, err := factory(params)
	if err != nil {
		d.errs = append(d.errs, wrong(n.at, n.path(), "is wrong: %w", err))
	}
	return b
}
