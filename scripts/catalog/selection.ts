// The models that a gateway knows by default: a selection written by hand. Models that are newer
// than the packages of prices and parameters have their prices and efforts here, each with a page
// and the day on which it was read (docs/decisions/2026-11-23-catalog-updates.md).

/** Dollars per million tokens. */
export interface TokenPrices {
  input: number;
  cached_input?: number;
  cache_write?: number;
  output: number;
}

/** The data of a model that is newer than the price package. */
export interface PublishedPrice {
  /** A page with all figures, the provider's own page if it has them; `day` is when it was read. */
  source: string;
  day: string;
  description: string;
  dollars: TokenPrices;
  /** Prices of calls with more input tokens. */
  above?: { input_tokens: number; dollars: TokenPrices };
  /** A note about the price. */
  note?: string;
}

export interface Efforts {
  ids: readonly string[];
  default: string;
}

export interface SelectedModel {
  /** The model's id is the provider's id, a slash and this name. */
  name: string;
  /** The provider's own name of the model, if it differs. */
  upstream?: string;
  title: string;
  /** From the provider's documentation, for models that neither package knows. */
  maxOutputTokens: number | null;
  contextWindow?: number;
  inputs: string[];
  tags: string[];
  modalities?: string[];
  /**
   * Dollars per unit from the provider's price list, and its date, for models without a price in the
   * package.
   */
  media?: { dollars: Record<string, number>; day: string; description: string };
  published?: PublishedPrice;
  /** The efforts from the provider's documentation, for models that the package of parameters lacks. */
  efforts?: Efforts;
}

export interface SelectedProvider {
  entry: Record<string, unknown> & { id: string; name: string };
  /** The provider's ids in the two packages. */
  prices: string;
  parameters: string | null;
  source: string;
  /** Price of input cached for an hour as a multiple of plain input; the price package lacks it. */
  hourCacheWrite?: number;
  models: SelectedModel[];
}

const visionModalities = ['text', 'image', 'file'];
const text = ['text'];
const media = [...visionModalities, 'audio', 'video'];

const gptEfforts = { ids: ['low', 'medium', 'high', 'xhigh', 'max'], default: 'medium' };
const gptEffortsWithNone = { ids: ['none', ...gptEfforts.ids], default: 'medium' };
const claudeEfforts = ['low', 'medium', 'high', 'xhigh', 'max'];
const geminiEfforts = { ids: ['low', 'medium', 'high'], default: 'medium' };

// What the models of a family have in common.
const gpt = { maxOutputTokens: 128_000, inputs: visionModalities };
const claude = { maxOutputTokens: 128_000, inputs: visionModalities };
const gemini = { maxOutputTokens: 65_536, inputs: media };

/** The day on which the pages below were read. */
const pagesReadOn = '2026-11-23';
const openaiModels = 'https://developers.openai.com/api/docs/models';
const anthropicModels = 'https://platform.claude.com/docs/en/models';
const geminiIntroduction =
  'Half of this until 2026-11-30; ' +
  'the price from 2026-12-01 counts at once, so that no call is charged too little.';

const solPrices = {
  dollars: { input: 2, cached_input: 0.1, cache_write: 2.5, output: 10 },
  above: {
    input_tokens: 272_000,
    dollars: { input: 4, cached_input: 0.2, cache_write: 5, output: 15 },
  },
};
const largeGeminiPrices = {
  dollars: { input: 4, cached_input: 0.2, output: 20 },
  note: geminiIntroduction,
};

export const selection: readonly SelectedProvider[] = [
  {
    entry: {
      id: 'openai',
      name: 'OpenAI',
      kind: 'openai',
      api_key_env: 'OPENAI_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
    },
    prices: 'openai',
    parameters: 'openai',
    source: 'https://platform.openai.com/docs/pricing',
    models: [
      {
        name: 'gpt-6-astra',
        title: 'GPT-6 Astra',
        ...gpt,
        tags: ['flagship', 'reasoning'],
        efforts: gptEfforts,
      },
      {
        name: 'gpt-6.2-sol',
        title: 'GPT-6.2 Sol',
        ...gpt,
        contextWindow: 1_050_000,
        tags: ['balanced', 'reasoning'],
        efforts: gptEfforts,
        published: {
          source: `${openaiModels}/gpt-6.2-sol`,
          day: pagesReadOn,
          description: 'Model for everyday work, from coding to agents at scale.',
          ...solPrices,
        },
      },
      {
        name: 'gpt-6.1-sol',
        title: 'GPT-6.1 Sol',
        ...gpt,
        contextWindow: 1_050_000,
        tags: ['balanced', 'reasoning'],
        efforts: gptEfforts,
        published: {
          source: 'https://docs.litellm.ai/blog/gpt_6_1_sol',
          day: pagesReadOn,
          description: 'Model for complex coding, computer use and professional work.',
          ...solPrices,
        },
      },
      {
        name: 'gpt-6.1-terra',
        title: 'GPT-6.1 Terra',
        ...gpt,
        contextWindow: 1_050_000,
        tags: ['balanced', 'reasoning'],
        efforts: gptEffortsWithNone,
        published: {
          source: `${openaiModels}/gpt-6.1-terra`,
          day: pagesReadOn,
          description: 'Model for visual reasoning, use of a computer and natural writing.',
          dollars: { input: 1, cached_input: 0.05, cache_write: 1.25, output: 5 },
          above: {
            input_tokens: 272_000,
            dollars: { input: 2, cached_input: 0.1, cache_write: 2.5, output: 7.5 },
          },
        },
      },
      {
        name: 'gpt-6-sol',
        title: 'GPT-6 Sol',
        ...gpt,
        tags: ['balanced', 'reasoning'],
        efforts: gptEffortsWithNone,
      },
      {
        name: 'gpt-6-luna',
        title: 'GPT-6 Luna',
        ...gpt,
        tags: ['fast', 'reasoning'],
        efforts: gptEffortsWithNone,
      },
      {
        name: 'gpt-5.6-sol',
        title: 'GPT-5.6 Sol',
        ...gpt,
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'gpt-5.6-terra',
        title: 'GPT-5.6 Terra',
        ...gpt,
        tags: ['balanced', 'reasoning'],
      },
      {
        name: 'gpt-5.6-luna',
        title: 'GPT-5.6 Luna',
        ...gpt,
        tags: ['fast', 'reasoning'],
      },
      {
        name: 'gpt-5.1',
        title: 'GPT-5.1',
        ...gpt,
        tags: ['reasoning'],
      },
      {
        name: 'gpt-5-mini',
        title: 'GPT-5 mini',
        ...gpt,
        tags: ['fast', 'reasoning'],
      },
      { name: 'gpt-4.1', title: 'GPT-4.1', maxOutputTokens: 32_768, inputs: visionModalities, tags: [] },
      {
        name: 'text-embedding-3-large',
        title: 'Text Embedding 3 Large',
        maxOutputTokens: null,
        inputs: text,
        tags: ['embedding'],
        modalities: ['embedding'],
      },
      {
        name: 'text-embedding-3-small',
        title: 'Text Embedding 3 Small',
        maxOutputTokens: null,
        inputs: text,
        tags: ['embedding', 'fast'],
        modalities: ['embedding'],
      },
    ],
  },
  {
    entry: {
      id: 'anthropic',
      name: 'Anthropic',
      kind: 'anthropic',
      api_key_env: 'ANTHROPIC_API_KEY',
      usage: 'none',
      output_limit_member: 'max_tokens',
    },
    prices: 'anthropic',
    parameters: 'anthropic',
    hourCacheWrite: 2,
    source: 'https://www.anthropic.com/pricing#api',
    models: [
      {
        name: 'claude-fable-5-2',
        title: 'Claude Fable 5.2',
        ...claude,
        contextWindow: 1_000_000,
        tags: ['flagship', 'reasoning'],
        efforts: { ids: claudeEfforts, default: 'high' },
        published: {
          source: 'https://docs.apiyi.com/news/claude-fable-5-2-launch',
          day: pagesReadOn,
          description: 'For demanding reasoning and long-horizon agentic work.',
          dollars: { input: 8, cached_input: 0.2, cache_write: 10, output: 40 },
        },
      },
      {
        name: 'claude-opus-5-5',
        title: 'Claude Opus 5.5',
        ...claude,
        tags: ['flagship', 'reasoning'],
        efforts: { ids: claudeEfforts, default: 'medium' },
      },
      {
        name: 'claude-sonnet-5-5',
        title: 'Claude Sonnet 5.5',
        ...claude,
        contextWindow: 1_000_000,
        tags: ['balanced', 'reasoning'],
        efforts: { ids: claudeEfforts, default: 'high' },
        published: {
          source: `${anthropicModels}/sonnet-5-5/overview`,
          day: pagesReadOn,
          description: 'The best combination of speed and intelligence.',
          dollars: { input: 2, cached_input: 0.1, cache_write: 2.5, output: 10 },
          note: 'Cached input since its reduction on 2026-10-07.',
        },
      },
      {
        name: 'claude-haiku-5-5',
        title: 'Claude Haiku 5.5',
        ...claude,
        contextWindow: 1_000_000,
        tags: ['fast', 'reasoning'],
        efforts: { ids: ['none', ...claudeEfforts], default: 'medium' },
        published: {
          source: `${anthropicModels}/haiku-5-5/overview`,
          day: pagesReadOn,
          description: 'For high-volume work such as classification, extraction and routing.',
          dollars: { input: 0.1, cached_input: 0.01, cache_write: 0.125, output: 0.5 },
          above: {
            input_tokens: 100_000,
            dollars: { input: 0.5, cached_input: 0.05, cache_write: 0.625, output: 2.5 },
          },
        },
      },
      {
        name: 'claude-opus-5',
        title: 'Claude Opus 5',
        ...claude,
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'claude-sonnet-5',
        title: 'Claude Sonnet 5',
        ...claude,
        tags: ['balanced', 'reasoning'],
      },
      {
        name: 'claude-opus-4-8',
        title: 'Claude Opus 4.8',
        ...claude,
        tags: ['reasoning'],
      },
      {
        name: 'claude-haiku-4-5',
        title: 'Claude Haiku 4.5',
        maxOutputTokens: 64_000,
        inputs: visionModalities,
        tags: ['fast'],
      },
    ],
  },
  {
    entry: {
      id: 'google',
      name: 'Google',
      kind: 'google',
      api_key_env: 'GOOGLE_API_KEY',
      usage: 'none',
      output_limit_member: 'maxOutputTokens',
    },
    prices: 'google',
    parameters: 'google',
    source: 'https://ai.google.dev/gemini-api/docs/pricing',
    models: [
      {
        name: 'gemini-4-carbon',
        title: 'Gemini 4 Carbon',
        ...gemini,
        contextWindow: 1_048_576,
        tags: ['flagship', 'reasoning'],
        efforts: geminiEfforts,
        published: {
          source: 'https://docs.apiyi.com/api-capabilities/gemini-4-carbon/overview',
          day: pagesReadOn,
          description: 'For deep work in complex tasks of coding, science and law.',
          ...largeGeminiPrices,
        },
      },
      {
        name: 'gemini-4-argon',
        title: 'Gemini 4 Argon',
        ...gemini,
        contextWindow: 1_048_576,
        tags: ['flagship', 'reasoning'],
        efforts: geminiEfforts,
        published: {
          source: 'https://github.com/BerriAI/litellm/discussions/46238',
          day: pagesReadOn,
          description: 'For hard tasks of software engineering and knowledge work.',
          ...largeGeminiPrices,
        },
      },
      {
        name: 'gemini-4-hydrogen',
        title: 'Gemini 4 Hydrogen',
        ...gemini,
        contextWindow: 1_048_576,
        tags: ['balanced', 'reasoning'],
        efforts: { ids: [...geminiEfforts.ids, 'xhigh'], default: 'high' },
        published: {
          source: 'https://docs.laozhang.ai/announcements/gemini-4-hydrogen-2026-11',
          day: pagesReadOn,
          description: 'Fast model for everyday coding and agents.',
          dollars: { input: 1.5, cached_input: 0.075, output: 7.5 },
        },
      },
      {
        name: 'gemini-3.8-flash',
        title: 'Gemini 3.8 Flash',
        ...gemini,
        tags: ['balanced', 'reasoning'],
        efforts: geminiEfforts,
      },
      {
        name: 'gemini-3.1-pro-preview',
        title: 'Gemini 3.1 Pro Preview',
        ...gemini,
        contextWindow: 1_048_576,
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'gemini-3.5-flash',
        title: 'Gemini 3.5 Flash',
        ...gemini,
        tags: ['balanced', 'reasoning'],
      },
      // Audio input costs these three more than text, and the catalog has one price for input.
      {
        name: 'gemini-3.1-flash-lite',
        title: 'Gemini 3.1 Flash Lite',
        maxOutputTokens: 65_536,
        inputs: [...visionModalities, 'video'],
        tags: ['fast', 'reasoning'],
      },
      {
        name: 'gemini-2.5-pro',
        title: 'Gemini 2.5 Pro',
        ...gemini,
        contextWindow: 1_048_576,
        tags: [],
      },
      {
        name: 'gemini-2.5-flash',
        title: 'Gemini 2.5 Flash',
        maxOutputTokens: 65_536,
        inputs: [...visionModalities, 'video'],
        tags: ['fast'],
      },
    ],
  },
  {
    entry: {
      id: 'deepseek',
      name: 'DeepSeek',
      kind: 'openai-compatible',
      base_url: 'https://api.deepseek.com/v1',
      api_key_env: 'DEEPSEEK_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_tokens',
      formats: ['chat'],
    },
    prices: 'deepseek',
    parameters: 'deepseek',
    source: 'https://api-docs.deepseek.com/quick_start/pricing',
    models: [
      {
        name: 'deepseek-v4-pro',
        title: 'DeepSeek V4 Pro',
        maxOutputTokens: null,
        inputs: text,
        tags: ['flagship', 'reasoning', 'open-weights'],
      },
      {
        name: 'deepseek-v4-flash',
        title: 'DeepSeek V4 Flash',
        maxOutputTokens: null,
        inputs: text,
        tags: ['fast', 'reasoning', 'open-weights'],
      },
    ],
  },
  {
    entry: {
      id: 'mistral',
      name: 'Mistral',
      kind: 'openai-compatible',
      base_url: 'https://api.mistral.ai/v1',
      api_key_env: 'MISTRAL_API_KEY',
      usage: 'none',
      output_limit_member: 'max_tokens',
    },
    prices: 'mistral',
    parameters: 'mistral',
    source: 'https://mistral.ai/pricing/api',
    models: [
      {
        name: 'mistral-large-2512',
        title: 'Mistral Large 3',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['flagship', 'open-weights'],
      },
      {
        name: 'mistral-medium-3-5',
        title: 'Mistral Medium 3.5',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['balanced'],
      },
      {
        name: 'mistral-small-2603',
        title: 'Mistral Small 4',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['fast', 'open-weights'],
      },
      {
        name: 'codestral-2508',
        title: 'Codestral 2508',
        maxOutputTokens: null,
        inputs: text,
        tags: ['code'],
      },
    ],
  },
  {
    entry: {
      id: 'xai',
      name: 'xAI',
      kind: 'openai-compatible',
      base_url: 'https://api.x.ai/v1',
      api_key_env: 'XAI_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
      unpriced_members: [
        'search_parameters',
        'web_search_options',
        'reference_images',
        'reference_audios',
        'video',
      ],
      formats: ['chat', 'responses'],
      video_format: 'xai',
    },
    prices: 'x-ai',
    parameters: 'xai',
    source: 'https://docs.x.ai/docs/models',
    models: [
      {
        name: 'grok-4.7',
        title: 'Grok 4.7',
        contextWindow: 500_000,
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['flagship', 'reasoning'],
        efforts: { ids: ['low', 'medium', 'high', 'xhigh'], default: 'high' },
        published: {
          source: 'https://github.com/BerriAI/litellm/discussions/42287',
          day: pagesReadOn,
          description: 'Model for coding, agentic tasks and knowledge work.',
          dollars: { input: 2, cached_input: 0.5, output: 6 },
          // The price of longer calls applies from 200,000 tokens on.
          above: { input_tokens: 199_999, dollars: { input: 4, cached_input: 1, output: 12 } },
        },
      },
      {
        name: 'grok-4.6',
        title: 'Grok 4.6',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['reasoning'],
        efforts: { ids: ['low', 'medium', 'high', 'xhigh'], default: 'high' },
      },
      {
        name: 'grok-4.5',
        title: 'Grok 4.5',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['flagship', 'reasoning'],
      },
      {
        name: 'grok-4.3',
        title: 'Grok 4.3',
        maxOutputTokens: null,
        inputs: ['text', 'image'],
        tags: ['balanced', 'reasoning'],
      },
      // A second costs 0.05 dollars at 480 lines and 0.07 at 720. An input image has a price of its own, so
      // the model accepts none.
      {
        name: 'grok-imagine-video',
        title: 'Grok Imagine Video',
        maxOutputTokens: null,
        inputs: text,
        tags: ['fast'],
        modalities: ['video'],
        media: {
          dollars: { video_second: 0.05, video_second_720: 0.07 },
          day: '2026-11-21',
          description: 'Makes short videos with sound from a text.',
        },
      },
    ],
  },
  {
    entry: {
      id: 'groq',
      name: 'Groq',
      kind: 'openai-compatible',
      base_url: 'https://api.groq.com/openai/v1',
      api_key_env: 'GROQ_API_KEY',
      usage: 'ask',
      output_limit_member: 'max_completion_tokens',
      unpriced_members: ['service_tier', 'compound_custom', 'search_settings'],
      formats: ['chat', 'responses'],
    },
    prices: 'groq',
    parameters: null,
    source: 'https://console.groq.com/docs/models',
    models: [
      {
        name: 'gpt-oss-120b',
        upstream: 'openai/gpt-oss-120b',
        title: 'GPT-OSS 120B on Groq',
        maxOutputTokens: 65_536,
        inputs: text,
        tags: ['fast', 'open-weights'],
      },
      {
        name: 'llama-3.3-70b-versatile',
        title: 'Llama 3.3 70B on Groq',
        contextWindow: 131_072,
        maxOutputTokens: 32_768,
        inputs: text,
        tags: ['fast', 'open-weights'],
      },
    ],
  },
];
