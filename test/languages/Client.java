// Calls a gateway and an agent with classes that quicktype generated from their documents.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Collectors;

public class Client {
    private static final HttpClient http = HttpClient.newHttpClient();

    private static String call(String url, String token, String body) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(url))
            .header("Authorization", "Bearer " + token)
            .header("Content-Type", "application/json");
        if (body != null) request.POST(BodyPublishers.ofString(body));
        return http.send(request.build(), BodyHandlers.ofString()).body();
    }

    public static void main(String[] words) throws Exception {
        String base = System.getenv("GATEWAY_URL");
        String token = System.getenv("GATEWAY_TOKEN");
        var models = gateway.Converter.ModelListFromJsonString(call(base + "/v1/ai/models", token, null));
        String question =
            "{\"model\":\"local/echo\",\"messages\":[{\"role\":\"user\",\"content\":\"Good morning\"}]}";
        var answer = gateway.Converter.ChatCompletionFromJsonString(
            call(base + "/v1/ai/chat/completions", token, question));
        var refusal = gateway.Converter.ProblemFromJsonString(
            call(base + "/v1/ai/models/no%2Fmodel", token, null));

        base = System.getenv("AGENT_URL");
        token = System.getenv("AGENT_TOKEN");
        var session = agent.Converter.SessionFromJsonString(
            call(base + "/api/sdk/sessions", token, "{\"title\":\"From Java\"}"));
        String promptUrl = base + "/api/sdk/sessions/" + session.getID() + "/prompt";
        var receipt = agent.Converter.PromptReceiptFromJsonString(
            call(promptUrl, token, "{\"text\":\"Good morning\"}"));
        var missing = agent.Converter.ProblemFromJsonString(
            call(base + "/api/sdk/sessions/ses_none", token, null));

        Map<String, Object> output = new LinkedHashMap<>();
        output.put(
            "models", models.getItems().stream().map(model -> model.getID()).collect(Collectors.toList()));
        output.put("text", answer.getChoices().get(0).getMessage().getContent());
        output.put("refusal", refusal.getError().getCode());
        output.put("session", receipt.getSessionID().equals(session.getID()));
        output.put("missing", missing.getError().getCode());
        System.out.println(new ObjectMapper().writeValueAsString(output));
    }
}
