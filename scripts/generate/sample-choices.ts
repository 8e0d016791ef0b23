// What the samples cannot read from the contract: which optional parameters are worth showing, which operations have
// no sample, and the calls of the two clients that do not follow the operation's name.

export interface SampleChoice {
  /** Optional parameters that the sample sends, by name. Required ones are always sent. */
  parameters?: readonly string[];
  /** Values instead of the example of the parameter. */
  values?: Readonly<Record<string, string | number>>;
  /** Headers that no parameter declares; the clients send them by themselves. */
  headers?: Readonly<Record<string, string>>;
  /** The TypeScript call without `await`, where the client has a method of another shape. */
  call?: string;
}

/** Pages and addresses that a browser or a payment provider opens, never a person's program. */
export const withoutSample: readonly string[] = [
  'accounts.receiveOauthCallback',
  'accounts.decideLogin',
  'payments.receiveStripeEvent',
  'payments.receiveCreemEvent',
  'payments.showSuccess',
  'payments.showCancel',
];

/** By document and operationId; the two variants of the agent share theirs. */
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
  'gateway/ai.createMessage': { parameters: ['anthropic-version'] },
  'gateway/ai.createMessageUnderVersion': { parameters: ['anthropic-version'] },
  'gateway/accounts.listUsers': { parameters: ['bureau_id'] },
  'gateway/credits.listHistory': { parameters: ['limit'] },
  'gateway/usage.getUsage': { parameters: ['group_by'] },
  'gateway/usage.listRecords': { parameters: ['model'] },
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
