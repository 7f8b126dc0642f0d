// Package model has TestModel: random applications, operators and connections, in virtual time, beside a model of the
// broker and of what the Consumer promises. Each call is compared with the model.
package model
