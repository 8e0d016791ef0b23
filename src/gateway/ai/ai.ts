// The service `ai`: the model catalog and the ways to call a model. Each handler resolves the model and its fallbacks,
// says what it asks of whichever runs, and leaves the rest to the attempts, the wire (text, specification, chat-format,
// passthrough) and the model's provider.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { ResponseRequest, StreamRequest } from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import type { Call, Reply } from '../../kernel/operation.ts';
import { asProblem, Problem, renderProblem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { type AttemptsNeeds, createAttempts, ranHeaders } from './attempts.ts';
import { openCatalog, viewOf, type CatalogModel } from './catalog.ts';
import * as chatFormat from './chat-format.ts';
import { createForeignCalls, type ForeignCall, type ForeignReply, requireFormat } from './foreign-calls.ts';
import { curatedModels } from './curated.ts';
import * as format from './foreign-format.ts';
import { checkChatInputs, checkPromptInputs } from './inputs.ts';
import type { MediaJobs } from './jobs/jobs.ts';
import type { Links } from './media/links.ts';
import { mediaHandlers } from './media/media.ts';
import type { ModelsFile } from './models-file.ts';
import type { Warning } from './model.ts';
import { checkProviders, type ProviderCheck } from './provider-check.ts';
import { createProviderModels } from './provider-models.ts';
import { localProvider } from './providers/local.ts';
import { checkEffort, effortOrDefault } from './reasoning.ts';
import { refuseMembers, refusePricedTools } from './refused-members.ts';
import { sdkConfig } from './sdk-config.ts';
import * as specification from './specification.ts';
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
  /** The models that every gateway knows; those of catalog.json where nothing is said. */
  curated?: ModelsFile;
  /** The folder of Markdown that `local/guide` answers from. */
  guideDirectory: string;
  clock: Clock;
  log: Log;
  timeouts?: Partial<Timeouts>;
  /** How often and when a provider that fails is asked again. */
  resilience?: Pick<AttemptsNeeds, 'retry' | 'breaker' | 'random'>;
  proxies?: Proxies;
  /** Between two comments on a silent stream. */
  heartbeatMs?: number;
  /** Takes live secrets out of a provider's words before a caller sees them. */
  hide?: (text: string) => string;
  /** The jobs of pictures and films; started and closed by whoever made them. */
  jobs: MediaJobs;
  links: Links;
}

/** The service, and what an operator asks of it beside the contract. */
export interface AiService extends Service<'ai'> {
  /** Calls each configured provider once and says how it stands. */
  checkProviders(): Promise<ProviderCheck[]>;
}

/** Opens the service. Throws a ModelsFileError when the models file cannot be used. */
export async function ai(needs: AiNeeds): Promise<AiService> {
  const { env, clock, log, heartbeatMs = 15_000, hide = (said) => said } = needs;
  const timeouts = { ...defaultTimeouts, ...needs.timeouts };
  const local = localProvider({ clock, guideDirectory: needs.guideDirectory });
  const catalog = await openCatalog({ env, builtin: local.entries, curated: needs.curated ?? curatedModels(), modelsFile: needs.modelsFile, log });
  const upstream = createUpstream({ timeouts, proxies: needs.proxies ?? {}, clock, log, hide });
  const providers = createProviderModels({ env, upstream, timeouts, local: local.models });
  const foreign = createForeignCalls({ providers, clock, heartbeatMs });
  const attempts = createAttempts({ clock, ...needs.resilience });

  const media = mediaHandlers({ catalog, attempts, providers, jobs: needs.jobs, links: needs.links, local: local.media, answerMs: timeouts.answerMs });

  const deadlineMs = (streams: boolean) => (streams ? timeouts.firstByteMs : timeouts.answerMs);

  // What a stream that failed midway says last; nothing when it was the caller that went away.
  function lastWords(call: Ending): (thrown: unknown, model: CatalogModel) => ReturnType<typeof renderProblem> | undefined {
    return (thrown, model) => {
      if (call.signal.aborted && !(call.signal.reason instanceof Problem)) return undefined;
      attempts.brokeOff(model, thrown);
      const problem = asProblem(call.signal.aborted ? call.signal.reason : thrown);
      if (problem.kind === 'internal') call.log.error({ err: problem.cause ?? problem }, 'stream failed');
      else call.log.debug({ code: problem.code, err: problem.cause }, 'stream failed');
      return renderProblem(problem, call.requestId);
    };
  }

  function specified(call: StreamCall) {
    const { body, headers, identity, signal } = call;
    const asked = specification.effortAsked(body);
    const hub = specification.callOf(body, undefined, signal);
    return {
      version: headers['ai-language-model-specification-version'] ?? '3',
      hub,
      task: {
        chain: catalog.chain(viewOf(identity), modelNamed(body, headers['ai-language-model-id']), 'stream'),
        signal,
        fits: (model: CatalogModel) => checkPromptInputs(model, hub.prompt),
        effort: (model: CatalogModel) => effortOrDefault(model, asked),
      },
    };
  }

  async function streamed(call: StreamCall) {
    const { hub, version, task } = specified(call);
    const ran = await attempts.run({
      ...task,
      deadlineMs: deadlineMs(true),
      prepare: (model, effort) => (firstMs) =>
        specification.wireParts(providers.languageModel(model, { effort, firstMs }).stream({ ...hub, reasoningEffort: effort }), {
          version,
          modelId: model.id,
          responseId: id('msg'),
          now: clock.now(),
          errorOf: (thrown) => lastWords(call)(thrown, model)?.error,
        }),
    });
    return { status: 200 as const, events: asEvents(ran.answer), end: '[DONE]', headers: ranHeaders(ran) };
  }

  async function whole(call: StreamCall) {
    const { hub, version, task } = specified(call);
    const ran = await attempts.run({
      ...task,
      deadlineMs: deadlineMs(false),
      prepare: (model, effort) => (firstMs) => providers.languageModel(model, { effort, firstMs }).generate({ ...hub, reasoningEffort: effort }),
    });
    const body = specification.answerOf(ran.answer, { version, modelId: ran.model.id, responseId: id('msg'), now: clock.now() });
    return { status: 200 as const, body, headers: ranHeaders(ran) };
  }

  function translated(call: ChatCall, model: CatalogModel, effort: string | undefined): (firstMs: number) => Promise<ChatReply> {
    const { body, signal } = call;
    const hub = chatFormat.callOf(body, effort, signal);
    const options = { modelId: model.id, completionId: id('chatcmpl').replace('_', '-'), createdSeconds: Math.floor(clock.now().getTime() / 1000) };
    return async (firstMs) => {
      const runs = providers.languageModel(model, { effort, firstMs });
      let warnings: readonly Warning[] = [];
      if (body.stream !== true) {
        const answer = await runs.generate(hub);
        return { status: 200, body: chatFormat.completion(answer, options), headers: warningHeaders(answer.warnings) };
      }
      const includeUsage = body.stream_options?.include_usage === true;
      const chunks = await begun(chatFormat.chunks(runs.stream(hub), { ...options, includeUsage, onWarnings: (given) => (warnings = given) }));
      return { status: 200, events: asEvents(chunks, (thrown) => attempts.brokeOff(model, thrown)), end: '[DONE]', headers: warningHeaders(warnings) };
    };
  }

  function foreignCall(call: Omit<ForeignCall, 'lastWords' | 'formatHeaders'> & Ending, formatHeaders: Record<string, string> = {}): ForeignCall {
    const { body, rawBody, signal } = call;
    return { body, rawBody, signal, formatHeaders, timing: (name, durationMs) => call.timing(name, durationMs), lastWords: lastWords(call) };
  }

  /** A call that nothing translates: it runs on models whose provider speaks its format. */
  async function passed(wanted: format.ForeignFormat, call: PassedCall, { effort, formatHeaders }: Passing): Promise<ForeignReply> {
    const { body, identity, signal } = call;
    const [requested, ...fallbacks] = catalog.chain(viewOf(identity), body.model);
    if (requested !== undefined) requireFormat(requested, wanted);
    const ran = await attempts.run({
      chain: [...(requested === undefined ? [] : [requested]), ...fallbacks.filter((model) => model.by.formats.includes(wanted.name))],
      signal,
      deadlineMs: deadlineMs(body.stream === true),
      fits: () => {},
      effort: (model) => checkEffort(model, effort),
      prepare: (model, checked) => {
        refuseMembers(body, model.by);
        if (model.rates !== null) refusePricedTools(body);
        return (firstMs) => foreign.pass(wanted, foreignCall(call, formatHeaders), model, { effort: checked, firstMs });
      },
    });
    return { ...ran.answer, headers: { ...ran.answer.headers, ...ranHeaders(ran) } };
  }

  const message = (call: Call<Operations['ai.createMessage'], Identity>) =>
    passed(format.messages, call, { effort: call.body.output_config?.effort, formatHeaders: messageHeaders(call.headers) });

  return {
    name: 'ai',
    title: 'Models',
    get env() {
      return catalog.requirements();
    },
    checkProviders: () => checkProviders({ env, models: () => catalog.all(), providers, foreign, clock }),
    async close() {
      catalog.close();
      await upstream.close();
    },
    handlers: {
      ...media,

      'ai.listModels': async ({ identity }) => ({ status: 200, body: catalog.list(viewOf(identity)) }),

      'ai.getModel': async ({ identity, path }) => ({ status: 200, body: catalog.get(viewOf(identity), path.model_id) }),

      'ai.getConfig': async ({ request }) => ({ status: 200, body: sdkConfig(catalog.callableNow('stream'), request.headers['user-agent']) }),

      'ai.generateText': async ({ identity, body, signal }) => {
        const hub = text.callOf(body, signal);
        const ran = await attempts.run({
          chain: catalog.chain(viewOf(identity), body.model, 'text'),
          signal,
          deadlineMs: deadlineMs(false),
          fits: (model) => checkPromptInputs(model, hub.prompt, 'messages'),
          effort: (model) => effortOrDefault(model, body.reasoning_effort),
          prepare: (model, effort) => (firstMs) => providers.languageModel(model, { effort, firstMs }).generate({ ...hub, reasoningEffort: effort }),
        });
        return { status: 200, body: text.messageOf(ran.answer, { id: id('msg'), ran: { model: ran.model.id, attempts: ran.attempts } }) };
      },

      'ai.streamText': (call) => streamed(call),

      'ai.createLanguageModelAnswer': (call) => (call.headers['ai-language-model-streaming'] === 'false' ? whole(call) : streamed(call)),

      'ai.createChatCompletion': async (call) => {
        const { identity, body, signal } = call;
        const ran = await attempts.run({
          chain: catalog.chain(viewOf(identity), body.model, 'openai'),
          signal,
          deadlineMs: deadlineMs(body.stream === true),
          fits: (model) => checkChatInputs(model, body.messages),
          effort: (model) => checkEffort(model, body.reasoning_effort),
          prepare: (model, effort): ((firstMs: number) => Promise<ChatReply>) => {
            refuseMembers(body, model.by);
            if (!model.by.formats.includes('chat')) return translated(call, model, effort);
            return (firstMs) => foreign.pass(format.chat, foreignCall(call), model, { effort, firstMs });
          },
        });
        return { ...ran.answer, headers: { ...ran.answer.headers, ...ranHeaders(ran) } };
      },

      'ai.embedText': (call) => passed(format.embeddings, call, {}),

      'ai.createResponse': async (call) => {
        refuseBackground(call.body);
        return passed(format.responses, call, { effort: call.body.reasoning?.effort });
      },

      'ai.createMessage': message,

      'ai.createMessageUnderVersion': message,

      'ai.rerankDocuments': (call) => passed(format.rerank, call, {}),
    },
  };
}

/** What of a call the end of its stream is told with. */
interface Ending {
  signal: AbortSignal;
  requestId: string;
  log: Log;
}

interface StreamCall extends Ending {
  body: StreamRequest;
  headers: Operations['ai.streamText']['headers'];
  identity: Identity;
}

type PassedCall = Omit<ForeignCall, 'lastWords' | 'formatHeaders' | 'body'> & Ending & { identity: Identity; body: ForeignCall['body'] & { model: string } };

interface Passing {
  effort?: string | null | undefined;
  formatHeaders?: Record<string, string>;
}

function modelNamed(body: StreamRequest, header: string | undefined): string {
  const named = body.model ?? header;
  if (named !== undefined && (body.model === undefined || header === undefined || body.model === header)) return named;
  const fault = named === undefined ? 'is required, here or in the header ai-language-model-id' : 'differs from the header ai-language-model-id';
  throw new Problem('bad_request', 'invalid_request', `The member model ${fault}.`, { param: 'model', details: [{ path: 'model', message: fault }] });
}

// Nobody waits for such an answer, so nobody would count what it cost.
function refuseBackground({ background }: ResponseRequest): void {
  if (background !== true) return;
  throw new Problem('impossible', 'unsupported_by_model', 'Answers in the background are not supported; leave background out.', { param: 'background' });
}

function messageHeaders(headers: Call<Operations['ai.createMessage'], Identity>['headers']): Record<string, string> {
  const beta = headers['anthropic-beta'];
  return { 'anthropic-version': headers['anthropic-version'] ?? '2023-06-01', ...(beta === undefined ? {} : { 'anthropic-beta': beta }) };
}

// Chat completions have no member for what could not be honoured.
function warningHeaders(warnings: readonly Warning[]): Record<string, string> {
  if (warnings.length === 0) return {};
  const said = warnings.map(text.warningText).join('; ');
  return { 'x-townhall-warnings': said.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 1000) };
}

// Waits for the first item, so that what fails before it is still answered with a status.
async function begun<T>(items: AsyncGenerator<T>): Promise<AsyncIterable<T>> {
  const first = await items.next();
  return (async function* () {
    if (first.done !== true) yield first.value;
    yield* items;
  })();
}

async function* asEvents<T>(items: AsyncIterable<T>, onThrow: (thrown: unknown) => void = () => {}): AsyncGenerator<{ data: T }> {
  try {
    for await (const data of items) yield { data };
  } catch (thrown) {
    onThrow(thrown);
    throw thrown;
  }
}
