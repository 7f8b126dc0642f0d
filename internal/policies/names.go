package policies

import (
	"slices"
	"strings"
)

// The built-in types and Java classes of policies in a configuration file.
var (
	TypeNames  = []string{"exponential", "levels", "fixed"}
	ClassNames = []string{"NegativeAckRedeliveryExponentialBackoff", "ExponentialRedeliveryBackoff",
		"MultiplierRedeliveryBackoff"}
)

// packages are Pulsar's packages that have such classes.
var packages = []string{"org.apache.pulsar.client.impl.", "org.apache.pulsar.client.api."}

// IsClass reports whether a Java class is one of ClassNames, without a package or in one of Pulsar's.
func IsClass(class string) bool {
	for _, p := range packages {
		if name, found := strings.CutPrefix(class, p); found {
			return slices.Contains(ClassNames, name)
		}
	}
	return slices.Contains(ClassNames, class)
}
