// Package causes finds errors with the same cause.
package causes

import "regexp"

var (
	ids     = regexp.MustCompile(`(?i)\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+|[0-9a-f]*(?:[0-9][a-f]|[a-f][0-9])[0-9a-f]{6,})\b`)
	numbers = regexp.MustCompile(`\d+(?:[.,:]\d+)*`)
)

// Mask replaces IDs by <id> and numbers by <n>, so that errors with the same cause have the same text.
func Mask(text string) string {
	return numbers.ReplaceAllString(ids.ReplaceAllString(text, "<id>"), "<n>")
}
