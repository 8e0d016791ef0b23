// The service `ai`: the model catalog and the operations that call a model. Each handler resolves the model and its
// fallbacks and describes the call; attempts.ts runs it, formats/ parses and serializes, providers/ talks to upstream.
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

/** Settings and dependencies of the service. */
export interface AiOptions {
  /** Provider keys, read again for each call. */
  env: { get(key: string): string | undefined };
  /** The operator's providers and models; read at start and on change. */
  modelsFile?: string | undefined;
  /** The built-in models; those of catalog.json by default. */
  curated?: ModelsFile;
  /** The folder of Markdown that `local/guide` answers from. */
  guideDirectory: string;
  /** False leaves the models of this process out of the catalog. */
  localModels?: boolean;
  clock: Clock;
  log: Log;
  timeouts?: Partial<Timeouts>;
  /** Retries and circuit breakers. */
  resilience?: Pick<AttemptsOptions, 'retry' | 'breaker' | 'random'>;
  proxies?: Proxies;
  videoLimits?: Partial<VideoLimits>;
  /** Between two comments on a silent stream. */
  heartbeatMs?: number;
  /** Removes live secrets from a provider's error messages. */
  hide?: (text: string) => string;
  /** Wraps each call of a model for tracing and metrics. */
  watch?: WatchAttempt;
  /** Calls with an impossible usage that stop a user's paid calls for an hour; 3 by default. */
  alarmsToStop?: number | undefined;
  /** W3C `traceparent` header of the current call. */
  traceparent?: () => string | undefined;
  /** Id of the current request, for the log. */
  requestId?: () => string | undefined;
  /** Holds and charges the credits of a call. */
  ledger: Ledger;
  /** Jobs for images and videos. The owner starts and closes them. */
  jobs: MediaJobs;
  links: MediaLinks;
}

/** The service, with operations for the operator beside the contract. */
export interface AiService extends Service<'ai'> {
  /** Calls each configured provider once and reports the result. */
  checkProviders(): Promise<ProviderCheck[]>;
  /** Resolves when every call so far is charged. */
  settled(): Promise<void>;
  /** Counts calls with an impossible usage, and users whose paid calls are stopped for it. */
  usageAlarms(): UsageAlarmCounts;
  /** State of the circuit breaker of each model. */
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

  // The error frame that ends a failed stream; undefined when the caller has disconnected.
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

  /** The language model and its call. A call without an output limit gets one that the caller can pay for. */
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

  /** Generates a complete answer and records its usage with the meter. */
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

  /** Sends a call untranslated. Only models whose provider accepts its format can run it. */
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

/** The members of a call that its error frame and its log lines need. */
interface CallContext {
  operationId: string;
  signal: AbortSignal;
  requestId: string;
  log: Log;
  note(fields: CallNote): void;
}

/** A call whose answer may be stored for replay under its Idempotency-Key. */
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

/** A model call with its effort, its time to the first byte and its meter. */
interface ModelCallTerms {
  hub: ModelCall;
  effort: string | undefined;
  firstMs: number;
  meter: Meter;
}

/** The complete answer, to be stored with the settlement for an idempotent replay. */
function answerForReplay({ remember }: ReplayableCall, body: unknown): Alongside | undefined {
  const answer = remember.inSettlement({ status: 200, body });
  return answer && { answer };
}

/** Renders the answer, which may contain the price, and settles the call; the replay answer commits with the charge. */
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
    // The gateway failed to render the answer, so the caller does not pay.
    await meter.settle('rejected');
    throw error;
  }
  const credits = await meter.settle('completed', answerForReplay(call, body));
  // They differ only if the operator absorbs a part.
  return { body: credits === price ? body : renderBody(credits), credits };
}

/** What a passthrough call demands of a model, for its maximum price. */
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
    // Only chat completions have `n`; the contract limits it.
    choices: callFormat.name === 'chat' && typeof n === 'number' ? n : 1,
    hasOutput: callFormat.limitMembers.length > 0,
    // The reranking model reads the query once per document.
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

// A background answer arrives outside of the call, so it could not be metered.
function refuseBackground({ background }: ResponseRequest): void {
  if (background !== true) return;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    'Answers in the background are not supported; leave background out.',
    { param: 'background' },
  );
}

// OpenAI's limit. The answer has one vector per input, so the limit bounds its size.
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

// These headers select an account at the provider; the configured key determines it instead.
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

// Chat completions have no member for warnings.
function warningHeaders(warnings: readonly Warning[]): Record<string, string> {
  if (warnings.length === 0) return {};
  const headerText = warnings.map(text.describeWarning).join('; ');
  return { 'x-townhall-warnings': headerText.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 1000) };
}

// Wait for the first item, so that an earlier failure still gets an HTTP status.
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
