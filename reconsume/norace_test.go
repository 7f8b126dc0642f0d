//go:build !race

package reconsume_test

const underRace = false
