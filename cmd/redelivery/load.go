package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/policies"
)

// unknownDelay is the assumed delay of a policy of a custom type, which only the user's program knows.
const unknownDelay = time.Minute

// loadFile is config.Load for a file that may have custom policy types. It prints a note for each policy of such a
// type, since the command does not know its delays.
func loadFile(path, command string, stderr io.Writer) (*config.Config, error) {
	var stands []config.Policy
	var names, notes []string
	for _, p := range customPolicies(path) {
		notes = append(notes, fmt.Sprintf("policy %q has the custom type %q, which this command does not know: "+
			"its delays are assumed to be %v",
			p.name, p.kind, unknownDelay))
		if !slices.Contains(names, p.kind) {
			names = append(names, p.kind)
			stands = append(stands, config.NewPolicy(p.kind, func(map[string]any) (backoff.RedeliveryBackoff, error) {
				return backoff.Fixed(unknownDelay), nil
			}))
		}
	}
	c, err := config.Load(path, stands...)
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		fmt.Fprintf(stderr, "redelivery %s: note: %s\n", command, clean(note))
	}
	return c, nil
}

type customPolicy struct{ name, kind string }

// customPolicies returns the policies of a type or class that package config does not have. It returns none for a file
// that cannot be read, since config.Load reports that.
func customPolicies(path string) (custom []customPolicy) {
	var file struct {
		Policies map[string]struct {
			Type      string `yaml:"type"`
			ClassName string `yaml:"className"`
		} `yaml:"policies"`
	}
	data, err := os.ReadFile(path)
	if err != nil || yaml.Unmarshal(data, &file) != nil {
		return nil
	}
	for name, p := range file.Policies {
		switch {
		case p.ClassName != "" && !policies.IsClass(p.ClassName):
			custom = append(custom, customPolicy{name, p.ClassName})
		case p.ClassName == "" && p.Type != "" && !slices.Contains(policies.TypeNames, p.Type):
			custom = append(custom, customPolicy{name, p.Type})
		}
	}
	slices.SortFunc(custom, func(a, b customPolicy) int { return strings.Compare(a.name, b.name) })
	return custom
}
