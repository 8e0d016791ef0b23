// The service `ai`: the model catalog and the ways to call a model. Each handler resolves the model, checks what was
// asked against it, and leaves the rest to the wire (text, specification-v3, chat-format, passthrough) and to the
// model's provider.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { StreamRequest } from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import type { Call, Reply } from '../../kernel/operation.ts';
import { asProblem, Problem, renderProblem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { openCatalog, type CatalogModel, type View } from './catalog.ts';
import * as chatFormat from './chat-format.ts';
import { checkChatInputs, checkPromptInputs } from './inputs.ts';
import type { LanguageModel } from './model.ts';
import { incomingAnswer, incomingStream, outgoing } from './passthrough.ts';
import { localProvider } from './providers/local.ts';
import { openAiCompatibleModel } from './providers/openai-compatible.ts';
import { checkEffort, effortOrDefault, isRaised } from './reasoning.ts';
import { refuseMembers } from './refused-members.ts';
import * as specificationV3 from './specification-v3.ts';
import * as text from './text.ts';
import { createUpstream, defaultTimeouts, type Proxies, type Timeouts } from './upstream/client.ts';

type ChatCall = Call<Operations['ai.createChatCompletion'], Identity>;
type ChatReply = Reply<Operations['ai.createChatCompletion']>;

/** What the service needs of the world around it. */
export interface AiNeeds {
  /** Provider keys as they are now; asked again at each call. */
  env: { get(key: string): string | undefined };
  /** The operator's providers and models; read at start and on change. */
  modelsFile?: string | undefined;
  /** The folder of Markdown that `local/guide` answers from. */
  guideDirectory: string;
  clock: Clock;
  log: Log;
  timeouts?: Partial<Timeouts>;
  proxies?: Proxies;
  /** Between two comments on a silent stream. */
  heartbeatMs?: number;
  /** Takes live secrets out of a provider's words before a caller sees them. */
  hide?: (text: string) => string;
}

/** Opens the service. Throws a ModelsFileError when the models file cannot be used. */
export async function ai(needs: AiNeeds): Promise<Service<'ai'>> {
  const { env, clock, log, heartbeatMs = 15_000, hide = (said) => said } = needs;
  const timeouts = { ...defaultTimeouts, ...needs.timeouts };
  const local = localProvider({ clock, guideDirectory: needs.guideDirectory });
  const catalog = await openCatalog({ env, builtin: local.entries, modelsFile: needs.modelsFile, log });
  const upstream = createUpstream({ timeouts, proxies: needs.proxies ?? {}, clock, log, hide });

  /** How to reach the provider of this model, for this call. */
  function access(model: CatalogModel, effort: string | undefined): { apiKey: string | undefined; idleMs: number | undefined } {
    const key = model.by.api_key_env;
    const idleMs = model.idle_timeout_s === undefined ? timeouts.idleMs : model.idle_timeout_s * 1000;
    // A model that was asked to think harder is silent for as long as a whole answer may take.
    return { apiKey: key === undefined ? undefined : env.get(key), idleMs: isRaised(model, effort) ? Math.max(idleMs, timeouts.answerMs) : idleMs };
  }

  function languageModel(model: CatalogModel, effort: string | undefined): LanguageModel {
    if (model.by.kind === 'openai-compatible') return openAiCompatibleModel(model, { upstream, ...access(model, effort) });
    const found = local.models.get(model.upstream_model);
    if (found === undefined) throw new Error(`The model ${model.id} has nothing that runs it.`);
    return found;
  }

  async function translated({ body, signal }: ChatCall, model: CatalogModel, effort: string | undefined): Promise<ChatReply> {
    const runs = languageModel(model, effort);
    const call = chatFormat.callOf(body, effort, signal);
    const options = { modelId: model.id, completionId: id('chatcmpl').replace('_', '-'), createdSeconds: Math.floor(clock.now().getTime() / 1000) };
    if (body.stream !== true) return { status: 200, body: chatFormat.completion(await runs.generate(call), options) };
    const chunks = chatFormat.chunks(runs.stream(call), { ...options, includeUsage: body.stream_options?.include_usage === true });
    return { status: 200, events: asEvents(await begun(chunks)), end: '[DONE]' };
  }

  async function passedThrough(call: ChatCall, model: CatalogModel, effort: string | undefined): Promise<ChatReply> {
    const { body, rawBody, signal, requestId } = call;
    const sent = outgoing(rawBody, body, model);
    const streams = body.stream === true;
    const startedMs = clock.monotonicMs();
    const answer = await upstream.send({ url: `${model.by.base_url}/chat/completions`, ...access(model, effort), body: sent.bytes, streams, signal });
    const content = streams
      ? await incomingStream(answer, {
          modelId: model.id,
          wantsUsage: sent.wantsUsage,
          heartbeatMs,
          errorEvent: (thrown) => lastWords(thrown, { signal, requestId, log: call.log }),
        })
      : await incomingAnswer(answer, model.id);
    call.timing('upstream', clock.monotonicMs() - startedMs);
    if (!streams) return { status: 200, content, mediaType: 'application/json; charset=utf-8' };
    return { status: 200, content, mediaType: 'text/event-stream; charset=utf-8', headers: { 'x-accel-buffering': 'no' } };
  }

  return {
    name: 'ai',
    title: 'Models',
    get env() {
      return catalog.requirements();
    },
    async close() {
      catalog.close();
      await upstream.close();
    },
    handlers: {
      'ai.listModels': async ({ identity }) => ({ status: 200, body: catalog.list(viewOf(identity)) }),

      'ai.getModel': async ({ identity, path }) => ({ status: 200, body: catalog.get(viewOf(identity), path.model_id) }),

      'ai.generateText': async ({ identity, body, signal }) => {
        const model = catalog.callable(viewOf(identity), body.model, 'text');
        const effort = effortOrDefault(model, body.reasoning_effort);
        const answer = await languageModel(model, effort).generate(text.callOf(body, effort, signal));
        return { status: 200, body: text.messageOf(answer, { id: id('msg'), modelId: model.id }) };
      },

      'ai.streamText': async ({ identity, body, headers, signal, requestId, log: callLog }) => {
        const model = catalog.callable(viewOf(identity), modelNamed(body, headers['ai-language-model-id']), 'stream');
        const effort = effortOrDefault(model, body.reasoning_effort);
        const call = specificationV3.callOf(body, effort, signal);
        checkPromptInputs(model, call.prompt);
        const parts = await specificationV3.wireParts(languageModel(model, effort).stream(call), {
          modelId: model.id,
          responseId: id('msg'),
          now: clock.now(),
          errorOf: (thrown) => lastWords(thrown, { signal, requestId, log: callLog })?.error,
        });
        return { status: 200, events: asEvents(parts), end: '[DONE]' };
      },

      'ai.createChatCompletion': async (call) => {
        const { identity, body } = call;
        const model = catalog.callable(viewOf(identity), body.model, 'openai');
        const effort = checkEffort(model, body.reasoning_effort);
        checkChatInputs(model, body.messages);
        refuseMembers(body, model.by);
        return model.by.kind === 'local' ? translated(call, model, effort) : passedThrough(call, model, effort);
      },
    },
  };
}

function viewOf(identity: Identity): View {
  return identity.kind === 'admin' ? 'admin' : 'user';
}

function modelNamed(body: StreamRequest, header: string | undefined): string {
  const named = body.model ?? header;
  if (named !== undefined && (body.model === undefined || header === undefined || body.model === header)) return named;
  const fault = named === undefined ? 'is required, here or in the header ai-language-model-id' : 'differs from the header ai-language-model-id';
  throw new Problem('bad_request', 'invalid_request', `The member model ${fault}.`, { param: 'model', details: [{ path: 'model', message: fault }] });
}

interface Ending {
  signal: AbortSignal;
  requestId: string;
  log: Log;
}

// What a stream that failed midway says last; nothing when it was the caller that went away.
function lastWords(thrown: unknown, { signal, requestId, log }: Ending): ReturnType<typeof renderProblem> | undefined {
  if (signal.aborted && !(signal.reason instanceof Problem)) return undefined;
  const problem = asProblem(signal.aborted ? signal.reason : thrown);
  if (problem.kind === 'internal') log.error({ err: problem.cause ?? problem }, 'stream failed');
  else log.debug({ code: problem.code, err: problem.cause }, 'stream failed');
  return renderProblem(problem, requestId);
}

// Waits for the first item, so that what fails before it is still answered with a status.
async function begun<T>(items: AsyncGenerator<T>): Promise<AsyncIterable<T>> {
  const first = await items.next();
  return (async function* () {
    if (first.done !== true) yield first.value;
    yield* items;
  })();
}

async function* asEvents<T>(items: AsyncIterable<T>): AsyncGenerator<{ data: T }> {
  for await (const data of items) yield { data };
}
