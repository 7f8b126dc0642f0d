package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The limits of a file. Settings of a thousand consumers stay far below them. A file above a limit may be an attempt to
// use up memory.
const (
	maxBytes = 1 << 20 // of the file, and of the texts of its values with every alias written out
	maxNodes = 100_000 // with every alias written out
	maxDepth = 32
)

// node is a value of the file, with its aliases written out.
type node struct {
	kind   yaml.Kind // ScalarNode, SequenceNode or MappingNode
	tag    string    // of a scalar: !!str, !!int, !!float, !!bool, !!null or another
	text   string    // of a scalar
	fields []field   // of a mapping, in the order of the file, each name once
	items  []*node   // of a sequence
	at     string    // where the value is: "file:7", "line 7" or "$VARIABLE"

	parent *node  // the mapping or sequence around the value; nil for the root
	name   string // if parent is a mapping
	index  int    // if parent is a sequence
}

type field struct {
	name  string
	at    string
	value *node
}

// place returns where a line is: "file:7" or "line 7", or "file" for line 0, which means unknown.
type place func(line int) string

func inFile(path string) place {
	return func(line int) string {
		switch {
		case path == "" && line > 0:
			return "line " + strconv.Itoa(line)
		case path == "":
			return "configuration"
		case line > 0:
			return path + ":" + strconv.Itoa(line)
		}
		return path
	}
}

// parseTree reads one document of YAML into a root whose parent and name are set. A JSON document is a YAML document,
// too. The returned tree is nil if there is no document, or if the document is wrong as a whole.
func parseTree(data []byte, root *node, at place) (*node, []error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, []error{err}
	}
	var document, second yaml.Node
	if err := loader.Load(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, []error{syntaxError(err, data, at)}
	}
	if err := loader.Load(&second); err == nil {
		return nil, []error{fmt.Errorf("%s: a second document begins, want one", at(second.Line))}
	} else if !errors.Is(err, io.EOF) {
		return nil, []error{syntaxError(err, data, at)}
	}
	g := grower{at: at}
	g.grow(root, document.Content[0], 0)
	if g.over != nil {
		return nil, []error{g.over}
	}
	return root, g.errs
}

func syntaxError(err error, data []byte, at place) error {
	var e *yaml.LoadError
	if !errors.As(err, &e) {
		return err
	}
	message := e.Message
	if strings.Contains(message, "cannot start any token") && tabIndented(data, e.Mark.Line) {
		return fmt.Errorf("%s: the line is indented with a tab, want spaces: YAML allows no tabs there",
			at(e.Mark.Line))
	}
	if e.ContextMsg != "" {
		message += " " + e.ContextMsg
	}
	return fmt.Errorf("%s: %s", at(e.Mark.Line), message)
}

// tabIndented reports whether there is a tab in the indentation of a line, from 1.
func tabIndented(data []byte, line int) bool {
	lines := bytes.Split(data, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	text := lines[line-1]
	return bytes.ContainsRune(text[:len(text)-len(bytes.TrimLeft(text, " \t"))], '\t')
}

// grower turns the graph of a YAML document into a tree: it writes out every alias, within the limits.
type grower struct {
	at    place
	nodes int
	bytes int
	over  error // says which limit the tree exceeds; if set, the tree does not grow any more
	errs  []error
}

// grow fills n, whose parent and name are set, with y.
func (g *grower) grow(n *node, y *yaml.Node, depth int) *node {
	n.kind, n.at = y.Kind, g.at(y.Line)
	g.nodes++
	g.bytes += len(y.Value)
	switch {
	case g.over != nil:
		return n
	case g.nodes > maxNodes:
		g.over = wrong(n.at, n.path(), "has more than %d values with its aliases written out, want fewer", maxNodes)
		return n
	case g.bytes > maxBytes:
		g.over = wrong(n.at, n.path(), "has more than %d bytes of text with its aliases written out, want fewer",
			maxBytes)
		return n
	case depth > maxDepth:
		g.over = wrong(n.at, n.path(), "is nested more than %d deep, want less", maxDepth)
		return n
	}
	switch y.Kind {
	case yaml.AliasNode:
		return g.grow(n, y.Alias, depth+1) // depth+1, since an alias may be inside the node that it names
	case yaml.ScalarNode:
		n.tag, n.text = y.ShortTag(), y.Value
	case yaml.SequenceNode:
		for i, y := range y.Content {
			n.items = append(n.items, g.grow(&node{parent: n, index: i}, y, depth+1))
		}
	case yaml.MappingNode:
		g.growFields(n, y.Content, depth+1)
	}
	return n
}

func (g *grower) growFields(n *node, content []*yaml.Node, depth int) {
	first := make(map[string]string, len(content)/2) // the place of the first key with each name
	for i := 0; i+1 < len(content); i += 2 {
		key := g.grow(&node{parent: n.parent, name: n.name, index: n.index}, content[i], depth)
		if g.over != nil {
			return
		}
		name, value := key.text, &node{parent: n, name: key.text}
		if name == "<<" && content[i].Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
			g.errs = append(g.errs, wrong(key.at, n.path(),
				"has a merge key (<<), which is not supported: write its keys out, or name the policy"))
			continue
		}
		if key.kind != yaml.ScalarNode || name == "" {
			g.errs = append(g.errs, wrong(key.at, n.path(), "has a key that is %s, want a name", key))
			continue
		}
		if at, twice := first[name]; twice {
			g.errs = append(g.errs, wrong(key.at, value.path(), "is there twice, want it once: first at %s", at))
			continue
		}
		first[name] = key.at
		n.fields = append(n.fields, field{name, key.at, g.grow(value, content[i+1], depth)})
	}
}

// wrong returns an error about the value at a place: "file:7: consumers.billing.ackTimeout is 10, want …".
func wrong(at, path, format string, args ...any) error {
	if path == "" {
		path = "the file"
	}
	return fmt.Errorf("%s: %s %w", at, path, fmt.Errorf(format, args...))
}

// path returns the path of a value: "consumers.billing.ackTimeout". It is made only for errors: all paths of a file
// together may be far longer than the file.
func (n *node) path() string {
	switch {
	case n.parent == nil:
		return ""
	case n.parent.kind == yaml.SequenceNode:
		return fmt.Sprintf("%s[%d]", n.parent.path(), n.index)
	}
	return join(n.parent.path(), n.name)
}

// join appends a name to a path. It quotes a name that is long, or has anything but letters, digits, - and _.
func join(path, name string) string {
	if len(name) > maxQuoted || strings.IndexFunc(name, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) >= 0 {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxQuoted is how many bytes of a name or a value an error shows.
const maxQuoted = 60

func quote(s string) string {
	if len(s) > maxQuoted {
		s = s[:maxQuoted] + "…"
	}
	return strconv.Quote(s)
}

func (n *node) isEmpty() bool { return n.kind == yaml.ScalarNode && n.tag == "!!null" }

// String returns the value as errors show it.
func (n *node) String() string {
	switch {
	case n.kind == yaml.SequenceNode:
		return "a list"
	case n.kind == yaml.MappingNode:
		return "a map"
	case n.isEmpty():
		return "empty"
	case n.tag == "!!int", n.tag == "!!float", n.tag == "!!bool":
		return strings.Trim(quote(n.text), `"`)
	}
	return quote(n.text)
}

// value returns a parameter for a Factory: a string, int, float64, bool, nil, []any or map[string]any.
func (n *node) value() any {
	switch n.kind {
	case yaml.SequenceNode:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.value()
		}
		return list
	case yaml.MappingNode:
		m := make(map[string]any, len(n.fields))
		for _, f := range n.fields {
			m[f.name] = f.value.value()
		}
		return m
	}
	var v any
	var err error
	switch n.tag {
	case "!!int":
		v, err = strconv.Atoi(n.text)
	case "!!float":
		v, err = strconv.ParseFloat(n.text, 64)
	case "!!bool":
		v, err = strconv.ParseBool(n.text)
	case "!!null":
		return nil
	default:
		return n.text
	}
	if err != nil { // 0x1F or .inf: the Factory gets the text
		return n.text
	}
	return v
}
