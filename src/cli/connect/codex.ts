// Codex merges a profile file into ~/.codex/config.toml, so config.toml itself stays unchanged
// (https://developers.openai.com/codex/config-advanced, Codex 0.134 and later).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

/** For models of other providers the gateway accepts only function tools, and refuses OpenAI's own tools. */
const servesOpenAiTools = (model: string): boolean => model.startsWith('openai/');

export const codex: Tool = {
  id: 'codex',
  title: 'Codex CLI',
  format: 'responses',
  preferredModel: /\bgpt-/,
  edits: ({ url, token, model, home, env }) => [
    {
      kind: 'file',
      path: join(env['CODEX_HOME'] || join(home, '.codex'), 'townhall.config.toml'),
      text: [
        '# Written by "townhall connect codex"; "townhall connect codex --undo" removes it.',
        `model = ${JSON.stringify(model)}`,
        'model_provider = "townhall"',
        ...(servesOpenAiTools(model) ? [] : ['web_search = "disabled"']),
        '',
        // Codex sends its subagents as tools of the type `namespace`, which other models do not have.
        ...(servesOpenAiTools(model) ? [] : ['[agents]', 'enabled = false', '']),
        '[model_providers.townhall]',
        'name = "Townhall"',
        `base_url = ${JSON.stringify(`${url}/v1`)}`,
        'wire_api = "responses"',
        // Over a WebSocket Codex sends only new input. It falls back to HTTP when it cannot open one.
        'supports_websockets = true',
        `experimental_bearer_token = ${JSON.stringify(token)}`,
        '',
      ].join('\n'),
    },
  ],
  start: () => ['codex --profile townhall'],
};
