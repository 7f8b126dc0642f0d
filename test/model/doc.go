// Package model has random applications, operators and connections on one side, and a model of the broker and of what the
// Consumer promises on the other: TestModel compares each call with the model, in virtual time.
package model
