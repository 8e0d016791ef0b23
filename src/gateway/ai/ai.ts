// The service `ai`: the model catalog and the ways to call a model. Each handler resolves the model and its fallbacks,
// says what it asks of whichever runs, and leaves the rest to the attempts, the wire (text, specification, chat-format,
// passthrough) and the model's provider.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { ResponseRequest, StreamRequest } from '../../contract/gateway/types.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Remember } from '../../kernel/data/idempotency.ts';
import { id } from '../../kernel/ids.ts';
import type { Log } from '../../kernel/log.ts';
import { failureNote } from '../../kernel/contract/failure-note.ts';
import type { Call, CallNote, Reply } from '../../kernel/contract/operation.ts';
import { toErrorDialect } from '../../kernel/error-dialects.ts';
import { asProblem, Problem, renderProblem } from '../../kernel/problem.ts';
import type { Alongside, Ledger } from '../credits/index.ts';
import type { Identity } from '../identity.ts';
import type { Service } from '../service.ts';
import { type AttemptsOptions, createAttempts, attemptHeaders, type WatchAttempt } from './attempts.ts';
import { checkModelsFile, openCatalog, viewerOf, type CatalogModel } from './catalog/catalog.ts';
import { serializeChunks, serializeCompletion } from './formats/chat-completions/answer.ts';
import { parseResponseFormat, toModelCall } from './formats/chat-completions/request.ts';
import { droppedMemberWarnings } from './formats/chat-completions/dropped-members.ts';
import {
  createPassthrough,
  creditsHeader,
  type PassthroughCall,
  type PassthroughReply,
  requireFormat,
} from './formats/passthrough/calls.ts';
import { curatedModels } from './catalog/curated.ts';
import * as format from './formats/passthrough/formats.ts';
import {
  checkAnswerFormat,
  checkChatInputs,
  checkLocalInput,
  checkPromptInputs,
} from './formats/input-checks.ts';
import { type Demand, requirePrice } from './metering/bound.ts';
import { isKeptLong, sizeOf } from './metering/measure.ts';
import { createMetering, type Meter } from './metering/meter.ts';
import { meterAnswer, meteredParts } from './metering/metered-parts.ts';
import type { UsageAlarmCounts } from './metering/usage-alarms.ts';
import { requestedOutputLimit } from './formats/passthrough/request.ts';
import type { MediaJobs } from './jobs/jobs.ts';
import type { MediaLinks } from './media/links.ts';
import { mediaHandlers } from './media-handlers.ts';
import type { ModelsFile } from './catalog/models-file.ts';
import type { Answer, ModelCall, Warning } from './hub/language-model.ts';
import { checkProviders, type ProviderCheck } from './provider-check.ts';
import { createProviderModels } from './providers/text-models.ts';
import { localProvider, noLocalModels } from './providers/local/local.ts';
import { defaultVideoLimits, type VideoLimits } from './providers/async-video.ts';
import { checkEffort, effortOrDefault } from './catalog/reasoning.ts';
import { refuseUnsafeMembers } from './upstream/request-guard.ts';
import { checkChatTools, checkProviderTools, refusePricedTools } from './upstream/tool-guard.ts';
import { sdkConfig } from './catalog/sdk-config.ts';
import * as specification from './formats/language-model.ts';
import * as text from './formats/text.ts';
import type { Proxies } from './upstream/agent.ts';
import { createUpstream } from './upstream/client.ts';
import { defaultTimeouts, type Timeouts } from './upstream/deadlines.ts';

type ChatCall = Call<Operations['ai.createChatCompletion'], Identity>;
type ChatReply = Reply<Operations['ai.createChatCompletion']>;

/** What the service needs of the world around it. */
export interface AiOptions {
  /** Provider keys as they are now; asked again at each call. */
  env: { get(key: string): string | undefined };
  /** The operator's providers and models; read at start and on change. */
  modelsFile?: string | undefined;
  /** The models that every gateway knows; those of catalog.json where nothing is said. */
  curated?: ModelsFile;
  /** The folder of Markdown that `local/guide` answers from. */
  guideDirectory: string;
  /** False leaves the models of this process out of the catalog. */
  localModels?: boolean;
  clock: Clock;
  log: Log;
  timeouts?: Partial<Timeouts>;
  /** How often and when a provider that fails is asked again. */
  resilience?: Pick<AttemptsOptions, 'retry' | 'breaker' | 'random'>;
  proxies?: Proxies;
  videoLimits?: Partial<VideoLimits>;
  /** Between two comments on a silent stream. */
  heartbeatMs?: number;
  /** Takes live secrets out of a provider's words before a caller sees them. */
  hide?: (text: string) => string;
  /** Follows each call of a model. */
  watch?: WatchAttempt;
  /** How many calls with a usage that cannot be stop the paid calls of a user for an hour; 3 by default. */
  alarmsToStop?: number | undefined;
  /** The header by which a provider joins the trace of a call. */
  traceparent?: () => string | undefined;
  /** Of the request that a call is made for, for the log. */
  requestId?: () => string | undefined;
  /** Who holds and charges the credits of a call. */
  ledger: Ledger;
  /** The jobs of pictures and films; started and closed by whoever made them. */
  jobs: MediaJobs;
  links: MediaLinks;
}

/** The service, and what an operator asks of it beside the contract. */
export interface AiService extends Service<'ai'> {
  /** Calls each configured provider once and says how it stands. */
  checkProviders(): Promise<ProviderCheck[]>;
  /** Resolves when every call so far is charged. */
  settled(): Promise<void>;
  /** How many calls had a usage that cannot be, and how many users' paid calls are stopped for it. */
  usageAlarms(): UsageAlarmCounts;
  /** Which models are held off after too many failures. */
  breakers(): { model: string; provider: string; isOpen: boolean }[];
}

/** Reads the models file as `ai` does, and opens nothing. Throws a SettingError when it cannot be used. */
export async function requireModelsFile(
  path: string,
  { clock, guideDirectory }: Pick<AiOptions, 'clock' | 'guideDirectory'>,
): Promise<void> {
  await checkModelsFile(path, localProvider({ clock, guideDirectory }).entries, curatedModels());
}

/** Opens the service. Throws a ModelsFileError when the models file cannot be used. */
export async function ai(options: AiOptions): Promise<AiService> {
  const { env, clock, log, heartbeatMs = 15_000, hide = (content) => content } = options;
  const timeouts = { ...defaultTimeouts, ...options.timeouts };
  const local =
    options.localModels === false
      ? noLocalModels
      : localProvider({ clock, guideDirectory: options.guideDirectory });
  const catalog = await openCatalog({
    env,
    builtin: local.entries,
    curated: options.curated ?? curatedModels(),
    modelsFile: options.modelsFile,
    log,
  });
  const upstream = createUpstream({
    timeouts,
    proxies: options.proxies ?? {},
    clock,
    log,
    hide,
    traceparent: options.traceparent,
    requestId: options.requestId,
  });
  const providers = createProviderModels({ env, upstream, timeouts, local: local.models });
  const passthrough = createPassthrough({ providers, clock, heartbeatMs });
  const attempts = createAttempts({ clock, watch: options.watch, ...options.resilience });
  const metering = createMetering({ ledger: options.ledger, clock, alarmsToStop: options.alarmsToStop });

  const media = mediaHandlers({
    catalog,
    attempts,
    metering,
    clock,
    providers,
    jobs: options.jobs,
    links: options.links,
    local: local.media,
    answerMs: timeouts.answerMs,
    videoLimits: { ...defaultVideoLimits, ...options.videoLimits },
  });

  const deadlineMs = (streams: boolean) => (streams ? timeouts.firstByteMs : timeouts.answerMs);

  // What a stream that failed midway says last; nothing when it was the caller that went away.
  function streamErrorFrame(
    call: CallContext,
  ): (error: unknown, model: CatalogModel) => ReturnType<typeof renderProblem> | undefined {
    return (error, model) => {
      if (call.signal.aborted && !(call.signal.reason instanceof Problem)) return undefined;
      attempts.recordStreamFailure(model, error);
      const problem = asProblem(call.signal.aborted ? call.signal.reason : error);
      if (problem.kind === 'internal') call.log.error({ err: problem.cause ?? problem }, 'stream failed');
      else
        call.log.warn(
          { model: model.id, provider: model.provider, code: problem.code, err: problem.cause },
          'stream failed',
        );
      call.note({ model: model.id, provider: model.provider, ...failureNote(problem) });
      return toErrorDialect(
        renderProblem(problem, call.requestId),
        problem,
        call.operationId.startsWith('ai.createMessage') ? 'anthropic' : undefined,
      );
    };
  }

  /** One model of the hub, and the call as it is made to it: with a limit that is paid for, where it has none. */
  function prepareModelCall(model: CatalogModel, { hub, meter, ...terms }: ModelCallTerms) {
    const languageModel = providers.languageModel(model, {
      ...terms,
      approveOutputLimit: (tokens) => meter.limitSent(model, tokens),
      onAnswerComplete: () => meter.completed(),
    });
    return {
      languageModel,
      call: {
        ...hub,
        reasoningEffort: terms.effort,
        maxOutputTokens: hub.maxOutputTokens ?? meter.limit(model),
        signal: meter.signal,
      },
    };
  }

  function prepareStreamCall(call: StreamCall, action: string) {
    const { body, headers, identity, signal } = call;
    const requestedEffort = specification.requestedEffort(body);
    const hub = specification.toModelCall(body, undefined, signal);
    const limit =
      body.maxOutputTokens === undefined
        ? undefined
        : { tokens: body.maxOutputTokens, member: 'maxOutputTokens' };
    return {
      version: headers['ai-language-model-specification-version'] ?? '3',
      hub,
      meter: openMeter(call, action, {
        size: sizeOf(body, 'stream'),
        hasTools: (body.tools?.length ?? 0) > 0,
        isKeptLong: isKeptLong(body),
        limit,
        limitMember: 'maxOutputTokens',
      }),
      task: {
        chain: catalog.chain(
          viewerOf(identity),
          requireModelId(body, headers['ai-language-model-id']),
          'stream',
        ),
        signal,
        fits: (model: CatalogModel) => {
          requirePrice(model, ['input', 'output']);
          checkPromptInputs(model, hub.prompt);
          checkLocalInput(model, body);
          checkAnswerFormat(model, hub.responseFormat, 'responseFormat');
          checkProviderTools(model, body.tools);
        },
        effort: (model: CatalogModel) => effortOrDefault(model, requestedEffort),
      },
    };
  }

  async function streamAnswer(call: StreamCall, action: string) {
    const { hub, version, meter, task } = prepareStreamCall(call, action);
    const result = await meter.run(attempts, {
      ...task,
      deadlineMs: deadlineMs(true),
      prepare: (model, effort) => (firstMs) => {
        const { languageModel, call: modelCall } = prepareModelCall(model, {
          effort,
          firstMs,
          hub,
          meter,
        });
        return specification.serializeStream(
          meteredParts(languageModel.stream(modelCall), meter, call.signal),
          {
            version,
            modelId: model.id,
            responseId: id('msg'),
            now: clock.now(),
            renderError: (error) => streamErrorFrame(call)(error, model)?.error,
          },
        );
      },
    });
    return {
      status: 200 as const,
      events: asEvents(result.answer),
      end: '[DONE]',
      headers: attemptHeaders(result),
    };
  }

  async function generateAnswer(call: StreamCall, action: string) {
    const { hub, version, meter, task } = prepareStreamCall(call, action);
    const result = await meter.run(attempts, {
      ...task,
      deadlineMs: deadlineMs(false),
      prepare: (model, effort) => (firstMs) => generateMetered(model, { effort, firstMs, hub, meter }),
    });
    const now = clock.now();
    const options = { version, modelId: result.model.id, responseId: id('msg'), now };
    const { body, credits } = await settleAndRender(call, meter, (price) =>
      specification.serializeAnswer(
        {
          ...result.answer,
          providerMetadata: { ...result.answer.providerMetadata, townhall: { credits: price } },
        },
        options,
      ),
    );
    return { status: 200 as const, body, headers: { ...attemptHeaders(result), ...creditsHeader(credits) } };
  }

  /** A whole answer, of which the meter was told. */
  async function generateMetered(model: CatalogModel, terms: ModelCallTerms): Promise<Answer> {
    const { languageModel, call } = prepareModelCall(model, terms);
    const answer = await languageModel.generate(call);
    meterAnswer(terms.meter, answer);
    return answer;
  }

  function openMeter(
    call: CallContext & ReplayableCall & { identity: Identity },
    action: string,
    demand: Demand,
  ): Meter {
    const { requestId, identity, signal, log: callLog, remember } = call;
    if (identity.kind === 'guest') throw new Error('A guest cannot pay.');
    return metering.open({ requestId, identity, action, signal, log: callLog, demand, remember });
  }

  function translateChatCall(
    call: ChatCall,
    model: CatalogModel,
    { effort, meter }: { effort: string | undefined; meter: Meter },
  ): (firstMs: number) => Promise<ChatReply> {
    const { body, signal } = call;
    const hub = toModelCall(body, { provider: model.providerEntry, effort, signal });
    const droppedWarnings = droppedMemberWarnings(body);
    const options = {
      modelId: model.id,
      completionId: id('chatcmpl').replace('_', '-'),
      createdSeconds: Math.floor(clock.now().getTime() / 1000),
    };
    return async (firstMs) => {
      let warnings: readonly Warning[] = [];
      if (body.stream !== true) {
        const answer = await generateMetered(model, { effort, firstMs, hub, meter });
        const { body: completion, credits } = await settleAndRender(call, meter, () =>
          serializeCompletion(answer, options),
        );
        return {
          status: 200,
          body: completion,
          headers: { ...warningHeaders([...droppedWarnings, ...answer.warnings]), ...creditsHeader(credits) },
        };
      }
      const { languageModel, call: modelCall } = prepareModelCall(model, {
        effort,
        firstMs,
        hub,
        meter,
      });
      const includeUsage = body.stream_options?.include_usage === true;
      const chunks = await waitForFirst(
        serializeChunks(meteredParts(languageModel.stream(modelCall), meter, signal), {
          ...options,
          includeUsage,
          onWarnings: (streamWarnings) => (warnings = streamWarnings),
        }),
      );
      return {
        status: 200,
        events: asEvents(chunks, (error) => attempts.recordStreamFailure(model, error)),
        end: '[DONE]',
        headers: warningHeaders([...droppedWarnings, ...warnings]),
      };
    };
  }

  function toPassthroughCall(
    call: PassthroughRequest,
    meter: Meter,
    formatHeaders: Record<string, string> = {},
  ): PassthroughCall {
    const { body, rawBody } = call;
    return {
      body,
      rawBody,
      signal: meter.signal,
      formatHeaders,
      meter,
      timing: (name, durationMs) => call.timing(name, durationMs),
      streamErrorBody: streamErrorFrame(call),
      saveForReplay: (answer: unknown) => answerForReplay(call, answer),
    };
  }

  /** A call that nothing translates: it runs on models whose provider speaks its format. */
  async function passThrough(
    callFormat: format.PassthroughFormat,
    call: PassthroughRequest,
    { effort, formatHeaders }: PassthroughSettings,
  ): Promise<PassthroughReply> {
    const { body, identity, signal } = call;
    const [requested, ...fallbacks] = catalog.chain(viewerOf(identity), body.model);
    if (requested !== undefined) requireFormat(requested, callFormat);
    const meter = openMeter(call, callFormat.name, passthroughDemand(body, callFormat, requested));
    const result = await meter.run(attempts, {
      chain: [
        ...(requested === undefined ? [] : [requested]),
        ...fallbacks.filter((model) => model.providerEntry.formats.includes(callFormat.name)),
      ],
      signal,
      deadlineMs: deadlineMs(body.stream === true),
      fits: (model) => requirePrice(model, ['input', 'output']),
      effort: (model) => checkEffort(model, effort),
      prepare: (model, checkedEffort) => {
        refuseUnsafeMembers(body, model.providerEntry, { limits: callFormat.limitMembers });
        if (model.rates !== null) refusePricedTools(body);
        return (firstMs) =>
          passthrough.send(callFormat, toPassthroughCall(call, meter, formatHeaders), model, {
            effort: checkedEffort,
            firstMs,
          });
      },
    });
    return { ...result.answer, headers: { ...result.answer.headers, ...attemptHeaders(result) } };
  }

  const createMessage = async (call: Call<Operations['ai.createMessage'], Identity>) => {
    refuseAccountHeaders(call.request.headers);
    return passThrough(format.messages, call, {
      effort: call.body.output_config?.effort,
      formatHeaders: messageHeaders(call.headers),
    });
  };

  return {
    name: 'ai',
    title: 'Models',
    get env() {
      return catalog.requirements();
    },
    breakers: () => attempts.breakers(),
    usageAlarms: () => metering.alarms(),
    checkProviders: () => checkProviders({ env, models: () => catalog.all(), providers, passthrough, clock }),
    async close() {
      catalog.close();
      await upstream.close();
    },
    settled: () => metering.settled(),
    handlers: {
      ...media,

      'ai.listModels': async ({ identity }) => ({ status: 200, body: catalog.list(viewerOf(identity)) }),

      'ai.getModel': async ({ identity, path }) => ({
        status: 200,
        body: catalog.get(viewerOf(identity), path.model_id),
      }),

      'ai.getConfig': async ({ identity, request }) => ({
        status: 200,
        headers: { vary: 'User-Agent' },
        body: sdkConfig(catalog.callableModels(viewerOf(identity), 'stream'), request.headers['user-agent']),
      }),

      'ai.generateText': async (call) => {
        const { identity, body, signal } = call;
        const hub = text.toModelCall(body, signal);
        const limit =
          body.max_output_tokens === undefined
            ? undefined
            : { tokens: body.max_output_tokens, member: 'max_output_tokens' };
        const meter = openMeter(call, 'text', {
          size: sizeOf(body, 'text'),
          hasTools: (body.tools?.length ?? 0) > 0,
          limit,
          limitMember: 'max_output_tokens',
        });
        const result = await meter.run(attempts, {
          chain: catalog.chain(viewerOf(identity), body.model, 'text'),
          signal,
          deadlineMs: deadlineMs(false),
          fits: (model) => {
            requirePrice(model, ['input', 'output']);
            checkPromptInputs(model, hub.prompt, 'messages');
            checkLocalInput(model, body);
            checkAnswerFormat(model, hub.responseFormat, 'response_format');
          },
          effort: (model) => effortOrDefault(model, body.reasoning_effort),
          prepare: (model, effort) => (firstMs) => generateMetered(model, { effort, firstMs, hub, meter }),
        });
        const messageId = id('msg');
        const { body: messageBody } = await settleAndRender(call, meter, (credits) =>
          text.serializeMessage(result.answer, {
            id: messageId,
            result: { model: result.model.id, attempts: result.attempts, credits },
          }),
        );
        return { status: 200, body: messageBody };
      },

      'ai.streamText': (call) => streamAnswer(call, 'stream'),

      'ai.createLanguageModelAnswer': (call) =>
        (call.headers['ai-language-model-streaming'] === 'false' ? generateAnswer : streamAnswer)(
          call,
          'language-model',
        ),

      'ai.createChatCompletion': async (call) => {
        const { identity, body, signal } = call;
        const chain = catalog.chain(viewerOf(identity), body.model, 'openai');
        const meter = openMeter(call, 'chat/completions', passthroughDemand(body, format.chat, chain[0]));
        const result = await meter.run(attempts, {
          chain,
          signal,
          deadlineMs: deadlineMs(body.stream === true),
          fits: (model) => {
            requirePrice(model, ['input', 'output']);
            checkChatInputs(model, body.messages);
            checkLocalInput(model, body);
            if (!model.providerEntry.formats.includes('chat'))
              checkAnswerFormat(model, parseResponseFormat(body), 'response_format');
          },
          effort: (model) => checkEffort(model, body.reasoning_effort),
          prepare: (model, effort): ((firstMs: number) => Promise<ChatReply>) => {
            refuseUnsafeMembers(body, model.providerEntry, { limits: format.chat.limitMembers });
            checkChatTools(model, body);
            if (!model.providerEntry.formats.includes('chat'))
              return translateChatCall(call, model, { effort, meter });
            return (firstMs) =>
              passthrough.send(format.chat, toPassthroughCall(call, meter), model, { effort, firstMs });
          },
        });
        return { ...result.answer, headers: { ...result.answer.headers, ...attemptHeaders(result) } };
      },

      'ai.embedText': async (call) => {
        refuseManyInputs(call.body);
        return passThrough(format.embeddings, call, {});
      },

      'ai.createResponse': async (call) => {
        refuseBackground(call.body);
        return passThrough(format.responses, call, { effort: call.body.reasoning?.effort });
      },

      'ai.createMessage': createMessage,

      'ai.createMessageUnderVersion': createMessage,

      'ai.rerankDocuments': (call) => passThrough(format.rerank, call, {}),
    },
  };
}

/** What of a call the end of its stream is told with. */
interface CallContext {
  operationId: string;
  signal: AbortSignal;
  requestId: string;
  log: Log;
  note(fields: CallNote): void;
}

/** A call whose answer may be kept for its repetition. */
interface ReplayableCall {
  remember: Remember;
}

interface StreamCall extends CallContext, ReplayableCall {
  body: StreamRequest;
  headers: Operations['ai.streamText']['headers'];
  identity: Identity;
}

type PassthroughRequest = Pick<PassthroughCall, 'rawBody' | 'timing'> &
  CallContext &
  ReplayableCall & { identity: Identity; body: PassthroughCall['body'] & { model: string } };

/** What is asked of a model of the hub, and on which terms. */
interface ModelCallTerms {
  hub: ModelCall;
  effort: string | undefined;
  firstMs: number;
  meter: Meter;
}

/** Keeps a whole answer for a repetition of the call, with its charge. */
function answerForReplay({ remember }: ReplayableCall, body: unknown): Alongside | undefined {
  const answer = remember.inSettlement({ status: 200, body });
  return answer && { answer };
}

/** Settles a call and makes its answer, which may tell the price; the two and what a repetition is answered with are one. */
async function settleAndRender<T>(
  call: ReplayableCall,
  meter: Meter,
  renderBody: (credits: number) => T,
): Promise<{ body: T; credits: number }> {
  const price = Number(meter.price());
  let body: T;
  try {
    body = renderBody(price);
  } catch (error) {
    // An answer that we cannot hand over is ours to bear.
    await meter.settle('rejected');
    throw error;
  }
  const credits = await meter.settle('completed', answerForReplay(call, body));
  // They differ only where the house has to bear a part.
  return { body: credits === price ? body : renderBody(credits), credits };
}

/** What a call in a foreign format asks for. */
function passthroughDemand(
  body: PassthroughCall['body'],
  callFormat: format.PassthroughFormat,
  model: CatalogModel | undefined,
): Demand {
  const { tools, n, query, documents } = body as {
    tools?: unknown;
    n?: unknown;
    query?: unknown;
    documents?: unknown;
  };
  return {
    size: sizeOf(body, callFormat.name),
    hasTools: Array.isArray(tools) && tools.length > 0,
    isKeptLong: callFormat.name === 'messages' && isKeptLong(body),
    limit: model && requestedOutputLimit(body, model, callFormat),
    limitMember: model?.providerEntry.output_limit_member ?? callFormat.limitMembers[0],
    // The contract bounds it there; no other format has it.
    choices: callFormat.name === 'chat' && typeof n === 'number' ? n : 1,
    hasOutput: callFormat.limitMembers.length > 0,
    // The question stands beside each document.
    repeatedBytes:
      typeof query === 'string' && Array.isArray(documents) ? Buffer.byteLength(query) * documents.length : 0,
  };
}

interface PassthroughSettings {
  effort?: string | null | undefined;
  formatHeaders?: Record<string, string>;
}

function requireModelId(body: StreamRequest, header: string | undefined): string {
  const modelId = body.model ?? header;
  if (modelId !== undefined && (body.model === undefined || header === undefined || body.model === header))
    return modelId;
  const explanation =
    modelId === undefined
      ? 'is required, here or in the header ai-language-model-id'
      : 'differs from the header ai-language-model-id';
  throw new Problem('bad_request', 'invalid_request', `The member model ${explanation}.`, {
    param: 'model',
    details: [{ path: 'model', message: explanation }],
  });
}

// Nobody waits for such an answer, so nobody would count what it cost.
function refuseBackground({ background }: ResponseRequest): void {
  if (background !== true) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    'Answers in the background are not supported; leave background out.',
    { param: 'background' },
  );
}

// What OpenAI takes. An answer has a vector for each input, so a longer list would make an answer of any size.
const maximumInputs = 2_048;

/** Throws a 400 for too many texts or lists of tokens. A list of numbers is the tokens of one input. */
function refuseManyInputs({ input }: { input: unknown }): void {
  if (
    !Array.isArray(input) ||
    input.length <= maximumInputs ||
    input.every((item) => typeof item === 'number')
  )
    return;
  throw new Problem(
    'bad_request',
    'invalid_request',
    `input may have ${maximumInputs} items at most; send more of them in further requests.`,
    { param: 'input' },
  );
}

// They say who answers for a call at the provider, and that is whose key is configured.
function refuseAccountHeaders(headers: Readonly<Record<string, unknown>>): void {
  const headerName = ['anthropic-workspace-id', 'anthropic-user-profile-id'].find(
    (name) => headers[name] !== undefined,
  );
  if (headerName === undefined) return;
  throw new Problem(
    'bad_request',
    'invalid_request',
    `The header ${headerName} is refused: accounts at providers are configured on the server.`,
    { param: headerName },
  );
}

function messageHeaders(
  headers: Call<Operations['ai.createMessage'], Identity>['headers'],
): Record<string, string> {
  const beta = headers['anthropic-beta'];
  return {
    'anthropic-version': headers['anthropic-version'] ?? '2023-06-01',
    ...(beta === undefined ? {} : { 'anthropic-beta': beta }),
  };
}

// Chat completions have no member for what could not be honoured.
function warningHeaders(warnings: readonly Warning[]): Record<string, string> {
  if (warnings.length === 0) return {};
  const headerText = warnings.map(text.describeWarning).join('; ');
  return { 'x-townhall-warnings': headerText.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 1000) };
}

// Waits for the first item, so that what fails before it is still answered with a status.
async function waitForFirst<T>(items: AsyncGenerator<T>): Promise<AsyncIterable<T>> {
  const first = await items.next();
  return (async function* () {
    if (first.done !== true) yield first.value;
    yield* items;
  })();
}

async function* asEvents<T>(
  items: AsyncIterable<T>,
  onThrow: (error: unknown) => void = () => {},
): AsyncGenerator<{ data: T }> {
  try {
    for await (const data of items) yield { data };
  } catch (error) {
    onThrow(error);
    throw error;
  }
}
