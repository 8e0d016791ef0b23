// Any server that speaks the chat-completions format, as a model of the hub. The AI SDK's provider package does the
// translation; the transport is ours (upstream/client.ts), so its deadlines and its errors hold here as everywhere.
import { ReadableStream } from 'node:stream/web';
import type { LanguageModelV4, LanguageModelV4CallOptions } from '@ai-sdk/provider';
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog.ts';
import type { Answer, Content, LanguageModel, ModelCall, StreamPart } from '../model.ts';
import { refuseMembers } from '../refused-members.ts';
import { maxAnswerBytes, maxEventBytes, readAll, type Upstream } from '../upstream/client.ts';
import { chatEvents } from '../upstream/events.ts';

export interface OpenAiCompatibleNeeds {
  upstream: Upstream;
  /** The provider's key now, or undefined where it needs none. */
  apiKey: string | undefined;
  /** The longest silence for this call. */
  idleMs: number | undefined;
}

export function openAiCompatibleModel(model: CatalogModel, needs: OpenAiCompatibleNeeds): LanguageModel {
  const { by: provider } = model;

  async function open(call: ModelCall, streams: boolean): Promise<{ sdk: LanguageModelV4; options: LanguageModelV4CallOptions }> {
    refuseOptions(model, call);
    // Loaded at the first call: whoever runs local models only never pays for it.
    const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
    const sdk = createOpenAICompatible({
      name: provider.id,
      baseURL: provider.base_url ?? '',
      includeUsage: provider.usage === 'ask',
      // A schema goes to the provider as it is; one that cannot follow it says so itself.
      supportsStructuredOutputs: true,
      // The package posts JSON text to an address of its own making; it uses no other form of fetch.
      fetch: (url, init) => send({ url: url as string, body: init?.body as string, streams, signal: call.signal }, needs),
      transformRequestBody: (body) => withLimit(body, model),
    });
    const { reasoningEffort, signal, providerOptions, ...options } = call;
    if (reasoningEffort === undefined) return { sdk: sdk.chatModel(model.upstream_model), options: { ...options, abortSignal: signal, providerOptions } };
    const withEffort = { ...providerOptions, openaiCompatible: { ...providerOptions?.openaiCompatible, reasoningEffort } };
    return { sdk: sdk.chatModel(model.upstream_model), options: { ...options, abortSignal: signal, providerOptions: withEffort } };
  }

  return {
    async generate(call) {
      const { sdk, options } = await open(call, false);
      try {
        const { content, finishReason, usage, warnings } = await sdk.doGenerate(options);
        return { content: content.filter(isContent), finishReason, usage, warnings } satisfies Answer;
      } catch (error) {
        throw asProblem(error, call.signal);
      }
    },
    async *stream(call) {
      const { sdk, options } = await open(call, true);
      try {
        const { stream } = await sdk.doStream(options);
        for await (const part of stream as AsyncIterable<StreamPart>) {
          yield part.type === 'error' ? { type: 'error', error: asProblem(part.error, call.signal) } : part;
        }
      } catch (error) {
        throw asProblem(error, call.signal);
      }
    },
  };
}

// The provider package puts these options into the request as they are, so what must not be in a request must not
// be in them either, and what the call itself decides must not be decided again.
function refuseOptions({ by: provider }: CatalogModel, call: ModelCall): void {
  for (const [owner, members] of Object.entries(call.providerOptions ?? {})) {
    const path = `providerOptions.${owner}`;
    refuseMembers(members, provider, path);
    const decided = Object.keys(members).find((name) => decidedByCall.has(name));
    if (decided === undefined) continue;
    const remedy = /effort/i.test(decided) ? 'reasoning_effort at the top level' : 'the call option of that meaning';
    throw new Problem('bad_request', 'invalid_request', `The member ${path}.${decided} is refused; send ${remedy} instead.`, {
      param: `${path}.${decided}`,
    });
  }
}

const decidedByCall = new Set([
  'model', 'messages', 'stream', 'stream_options', 'n', 'max_tokens', 'max_completion_tokens', 'reasoning_effort', 'reasoningEffort', 'tools',
]);

// The package always says `max_tokens`; the provider may know the limit by another name, and may need one at all.
function withLimit(body: Record<string, unknown>, model: CatalogModel): Record<string, unknown> {
  const name = model.by.output_limit_member;
  if (name === undefined) return body;
  const { max_tokens: asked, ...rest } = body;
  const limit = asked ?? model.max_output_tokens ?? undefined;
  return limit === undefined ? rest : { ...rest, [name]: limit };
}

// What the package takes for the network. It sees successes only, and streams only as long as they are well-formed.
async function send(
  { url, body, streams, signal }: { url: string; body: string; streams: boolean; signal: AbortSignal },
  { upstream, apiKey, idleMs }: OpenAiCompatibleNeeds,
): Promise<Response> {
  const answer = await upstream.send({ url, apiKey, body, streams, idleMs, signal });
  if (!streams) {
    const bytes = await readAll(answer.body, maxAnswerBytes);
    return new Response(new Uint8Array(bytes), { headers: { 'content-type': 'application/json' } });
  }
  if (answer.mediaType !== 'text/event-stream') {
    answer.abort();
    throw new Problem('upstream_failed', 'upstream_failed', 'The model provider did not answer with a stream.');
  }
  return new Response(ReadableStream.from(checked(answer.body)) as BodyInit, { headers: { 'content-type': 'text/event-stream' } });
}

async function* checked(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  for await (const group of chatEvents(body, maxEventBytes)) yield new Uint8Array(Buffer.concat(group.map((event) => event.bytes)));
}

function isContent(part: { type: string }): part is Content {
  return part.type === 'text' || part.type === 'reasoning' || part.type === 'tool-call' || part.type === 'source';
}

// The package wraps what our transport threw; whatever else it throws is an answer that it could not make sense of.
function asProblem(thrown: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  for (let error = thrown, depth = 0; error instanceof Error && depth < 8; error = error.cause, depth += 1) {
    if (error instanceof Problem) return error;
  }
  return new Problem('upstream_failed', 'upstream_failed', 'The model provider answered with something that is not a chat completion.', { cause: thrown });
}
