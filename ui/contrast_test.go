package ui

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var variable = regexp.MustCompile(`--([\w-]+): #([0-9a-f]{3,6});`)

type color [3]float64 // red, green and blue, from 0 to 1

func parseColor(t *testing.T, hex string) (c color) {
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	for i := range c {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		require.NoError(t, err)
		c[i] = float64(n) / 255
	}
	return c
}

// over returns the color that is seen where c is drawn with an opacity on the color ground.
func (c color) over(ground color, opacity float64) (mixed color) {
	for i := range c {
		mixed[i] = opacity*c[i] + (1-opacity)*ground[i]
	}
	return mixed
}

// luminance returns the relative luminance of a color, as WCAG 2 defines it.
func (c color) luminance() float64 {
	for i, x := range c {
		if x <= 0.04045 {
			c[i] = x / 12.92
		} else {
			c[i] = math.Pow((x+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}

// contrast returns the contrast ratio of two colors, as WCAG 2 defines it.
func contrast(a, b color) float64 {
	x, y := a.luminance()+0.05, b.luminance()+0.05
	return max(x, y) / min(x, y)
}

// WCAG AA requires a contrast of at least 4.5 for text, and of at least 3 for lines with a meaning. The test checks the
// light and the dark scheme.
func TestColorsHaveTheContrastThatWCAGRequires(t *testing.T) {
	data, err := files.ReadFile("static/style.css")
	require.NoError(t, err)
	roots := strings.SplitN(string(data), ":root {", 3)
	require.Len(t, roots, 3)
	for scheme, css := range map[string]string{"light": roots[1], "dark": roots[2]} {
		css, rest, _ := strings.Cut(css, "}")
		of := map[string]color{}
		for _, m := range variable.FindAllStringSubmatch(css, -1) {
			of[m[1]] = parseColor(t, m[2])
		}
		require.Len(t, of, 19, "the number of colors changed: check the contrast of each below")
		if scheme == "dark" {
			require.NotRegexp(t, `#[0-9a-f]{3,8}[ ;]`, rest, "a color is not defined as a variable")
		}
		check := func(want float64, front string, grounds ...string) {
			for _, ground := range grounds {
				assert.GreaterOrEqual(t, contrast(of[front], of[ground]), want, "%s: %s on %s", scheme, front, ground)
			}
		}
		for _, text := range []string{"text", "quiet", "link"} {
			check(4.5, text, "bg", "card", "code")
		}
		for _, state := range []string{"bad", "warn", "good", "busy"} {
			check(4.5, state, state+"-bg")
			check(4.5, "text", state+"-bg")
			if state == "busy" { // this state has no quiet text
				continue
			}
			assert.GreaterOrEqual(t, contrast(of[state].over(of[state+"-bg"], 0.85), of[state+"-bg"]), 4.5,
				"%s: quiet on %s", scheme, state)
		}
		check(4.5, "bad", "card", "code")
		check(4.5, "on", "accent", "bad")
		check(3, "accent", "bg", "card")
		check(3, "edge", "bg", "card")
		check(3, "spark", "card", "bad-bg", "code")
	}
	require.Equal(t, 21.0, math.Round(contrast(color{}, color{1, 1, 1})))
}
