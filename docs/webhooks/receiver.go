// A webhook receiver with Go's standard library alone: SVC_API_KEY=… PORT=3000 go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance    = 5 * time.Minute
	bodyBytesMax = 1 << 20
)

var (
	apiKey  = []byte(os.Getenv("SVC_API_KEY"))
	handled sync.Map // in production: a unique constraint in your database
)

func sum(content []byte) []byte {
	mac := hmac.New(sha256.New, apiKey)
	mac.Write(content)
	return mac.Sum(nil)
}

func equal(given, expected string) bool {
	return hmac.Equal([]byte(given), []byte(expected))
}

// X-SVC-Signature: sha256=<hex> over the raw body.
func isSigned(header http.Header, rawBody []byte) bool {
	return equal(header.Get("X-SVC-Signature"), "sha256="+hex.EncodeToString(sum(rawBody)))
}

// Standard Webhooks: v1,<base64> over id, timestamp and raw body; an old timestamp is a recorded request.
func isFresh(header http.Header, rawBody []byte) bool {
	timestamp := header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	content := append([]byte(header.Get("webhook-id")+"."+timestamp+"."), rawBody...)
	expected := "v1," + base64.StdEncoding.EncodeToString(sum(content))
	for _, signature := range strings.Split(header.Get("webhook-signature"), " ") {
		if equal(signature, expected) {
			return true
		}
	}
	return false
}

func receive(response http.ResponseWriter, request *http.Request) {
	rawBody, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bodyBytesMax))
	if err != nil {
		response.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	if !isSigned(request.Header, rawBody) || !isFresh(request.Header, rawBody) {
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	var message struct {
		Event string `json:"event"`
		Data  struct {
			TaskID string `json:"task_id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(rawBody, &message); err != nil {
		response.WriteHeader(http.StatusBadRequest)
		return
	}
	// A failed task sends two events with one task_id.
	if _, duplicate := handled.LoadOrStore(message.Event+" "+message.Data.TaskID, true); duplicate {
		fmt.Fprint(response, "duplicate")
		return
	}
	fmt.Println(message.Event, message.Data.TaskID)
	fmt.Fprint(response, "handled")
}

func main() {
	if len(apiKey) == 0 {
		log.Fatal("SVC_API_KEY is not set")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: http.HandlerFunc(receive), ReadTimeout: 30 * time.Second}
	log.Fatal(server.Serve(listener))
}
