// Calls a gateway and an agent with types that quicktype generated from their documents.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"townhall/agent"
	"townhall/gateway"
)

func call(url string, token string, body string) []byte {
	method := "GET"
	if body != "" {
		method = "POST"
	}
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	check(err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(err)
	return text
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	base, token := os.Getenv("GATEWAY_URL"), os.Getenv("GATEWAY_TOKEN")
	models, err := gateway.UnmarshalModelList(call(base+"/v1/ai/models", token, ""))
	check(err)
	question := `{"model":"local/echo","messages":[{"role":"user","content":"Good morning"}]}`
	answer, err := gateway.UnmarshalChatCompletion(call(base+"/v1/ai/chat/completions", token, question))
	check(err)
	refusal, err := gateway.UnmarshalProblem(call(base+"/v1/ai/models/no%2Fmodel", token, ""))
	check(err)

	base, token = os.Getenv("AGENT_URL"), os.Getenv("AGENT_TOKEN")
	session, err := agent.UnmarshalSession(call(base+"/api/sdk/sessions", token, `{"title":"From Go"}`))
	check(err)
	prompt := call(base+"/api/sdk/sessions/"+session.ID+"/prompt", token, `{"text":"Good morning"}`)
	receipt, err := agent.UnmarshalPromptReceipt(prompt)
	check(err)
	missing, err := agent.UnmarshalProblem(call(base+"/api/sdk/sessions/ses_none", token, ""))
	check(err)

	ids := []string{}
	for _, model := range models.Items {
		ids = append(ids, model.ID)
	}
	text, err := json.Marshal(map[string]interface{}{
		"models":  ids,
		"text":    answer.Choices[0].Message.Content,
		"refusal": refusal.Error.Code,
		"session": receipt.SessionID == session.ID,
		"missing": missing.Error.Code,
	})
	check(err)
	fmt.Println(string(text))
}
