package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// envPrefix is the beginning of the variables that override a file. The path in the file follows.
const envPrefix = "REDELIVERY_"

// sections are the parts of a file that a variable may override.
var sections = []string{"POLICIES", "CONSUMERS", "WORKERS"}

// plural replaces REDELIVERY_CONSUMER_ by REDELIVERY_CONSUMERS_ in the name of a variable, and likewise for the other
// sections.
var plural = strings.NewReplacer(envPrefix+"POLICY_", envPrefix+"POLICIES_", envPrefix+"CONSUMER_",
	envPrefix+"CONSUMERS_",
	envPrefix+"WORKER_", envPrefix+"WORKERS_")

// override puts variables of the environment, each "NAME=value", into the tree. They can set a key of a policy, a
// consumer or a worker that the file names. A variable that begins like these but matches no key is an error, like an
// unknown key in the file. So is a variable whose section is in the singular, if it would match a key in the plural.
func (d *decoder) override(root *node, environ []string) {
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(variable, "=")
		if inPlural := plural.Replace(name); text != "" && inPlural != name && len(root.targets(inPlural)) > 0 {
			d.errs = append(d.errs, fmt.Errorf("$%s is set, want %s", name, inPlural))
		}
		if text == "" || !slices.ContainsFunc(sections,
			func(s string) bool { return strings.HasPrefix(name, envPrefix+s+"_") }) {
			continue
		}
		switch t := root.targets(name); len(t) {
		case 1:
			t[0].entry.set(t[0].key, "$"+name, text)
		case 0:
			if kubernetes.MatchString(name) {
				continue
			}
			d.errs = append(d.errs, fmt.Errorf("$%s is set, but the file has no policy, consumer or worker with a "+
				"key of that name", name))
		default:
			d.errs = append(d.errs, fmt.Errorf("$%s means both %s and %s, want names that differ in letters or digits",
				name, join(t[0].entry.path(), t[0].key), join(t[1].entry.path(), t[1].key)))
		}
	}
}

// targets returns the keys of the file that a variable matches.
func (n *node) targets(variable string) (targets []target) {
	for _, section := range n.fields {
		keys := consumerKeys
		switch section.name {
		case "policies":
			keys = policyKeys
		case "consumers":
		case "workers":
			keys = workerKeys
		default:
			continue
		}
		for _, entry := range section.value.fields {
			name, found := strings.CutPrefix(variable, envPrefix+envName(section.name)+"_"+envName(entry.name)+"_")
			if !found {
				continue
			}
			for _, key := range entry.value.keys(keys) {
				if envName(key) == name {
					targets = append(targets, target{entry.value, key})
				}
			}
		}
	}
	return targets
}

// kubernetes matches the variables that Kubernetes sets in a pod for a service. For a service named
// redelivery-consumers they are REDELIVERY_CONSUMERS_SERVICE_HOST, REDELIVERY_CONSUMERS_SERVICE_PORT_HTTP,
// REDELIVERY_CONSUMERS_PORT_8080_TCP_ADDR and others.
var kubernetes = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

type target struct {
	entry *node // a policy, a consumer or a worker
	key   string
}

// keys returns the known keys, and the keys of n that are not among them.
func (n *node) keys(known []string) []string {
	keys := slices.Clone(known)
	for _, f := range n.fields {
		if !slices.Contains(known, f.name) {
			keys = append(keys, f.name)
		}
	}
	return keys
}

// set sets the field of n with this name to a scalar. If n already has the field, set replaces it.
func (n *node) set(name, at, text string) {
	value := &node{kind: yaml.ScalarNode, tag: "!!str", text: text, at: at, parent: n, name: name}
	if tree, errs := parseTree([]byte(text), new(node), inFile("")); len(errs) == 0 && tree != nil &&
		tree.text == text {
		value.tag = tree.tag // a number or a bool, as in the file
	}
	if n.isEmpty() {
		n.kind, n.tag = yaml.MappingNode, ""
	}
	n.fields = slices.DeleteFunc(n.fields, func(f field) bool { return f.name == name })
	n.fields = append(n.fields, field{name, at, value})
}

// envName writes ackTimeout as ACK_TIMEOUT, and billing-eu as BILLING_EU.
func envName(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		if unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsDigit(last)) {
			b.WriteByte('_')
		}
		last = r
		switch {
		case r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}
