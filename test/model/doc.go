// Package model has TestModel: random applications, operators and connections, in virtual time. It compares each call
// with a model of the broker and of the Consumer's promises.
package model
