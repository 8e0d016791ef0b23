// Choices for the code samples that cannot be derived from the contract: optional parameters to show,
// operations without a sample, and client methods that are not named like their operation.

export interface SampleChoice {
  /** Optional parameters that the sample sends, by name. Required ones are always sent. */
  parameters?: readonly string[];
  /** Values to use instead of the parameter's example. */
  values?: Readonly<Record<string, string | number>>;
  /** Headers that no parameter declares; the clients send them by themselves. */
  headers?: Readonly<Record<string, string>>;
  /** The TypeScript call without `await`, for an operation whose client method has another shape. */
  call?: string;
}

/** Operations that only browsers and payment providers call, and a stream without an end. */
export const withoutSample: readonly string[] = [
  'accounts.receiveOauthCallback',
  'accounts.decideLogin',
  'payments.receiveStripeEvent',
  'payments.receiveCreemEvent',
  'payments.showSuccess',
  'payments.showCancel',
  'sessions.followAll',
];

/** The choices by document and operationId; the two variants of the agent share theirs. */
export const choices: Readonly<Record<string, SampleChoice>> = {
  'gateway/ai.createLanguageModelAnswer': {
    parameters: [
      'ai-language-model-specification-version',
      'ai-language-model-id',
      'ai-language-model-streaming',
    ],
  },
  'gateway/ai.streamText': { headers: { 'ai-language-model-specification-version': '3' } },
  'gateway/ai.synthesizeSpeech': { headers: { Accept: 'application/json' } },
  'gateway/ai.listClientModels': { parameters: ['anthropic-version'] },
  'gateway/ai.createMessage': { parameters: ['anthropic-version'] },
  'gateway/accounts.listUsers': { parameters: ['bureau_id'] },
  'gateway/credits.listHistory': { parameters: ['limit'] },
  'gateway/usage.getUsage': { parameters: ['group_by'] },
  'gateway/usage.listRecords': { parameters: ['model'] },
  'gateway/audit.listEntries': { parameters: ['target_id'] },
  'gateway/services.callReadingAction': {
    values: { action: 'list' },
    call: "client.call('notes', 'list', {}, { method: 'GET' })",
  },
  'gateway/services.callAction': { call: "client.call('notes', 'add', { text: 'Good morning' })" },
  'gateway/services.callReadingStep': {
    values: { action: 'list', step: 'newest' },
    call: "client.call('notes', 'list/newest', {}, { method: 'GET' })",
  },
  'gateway/services.callStep': { call: "client.call('notes', 'add/start', { text: 'Good morning' })" },
  'agent/sessions.follow': { parameters: ['until'], values: { until: 'idle' } },
  'agent/sessions.prompt': { parameters: ['Prefer'] },
  'agent/sessions.listApprovals': { parameters: ['status'], values: { status: 'pending' } },
};
