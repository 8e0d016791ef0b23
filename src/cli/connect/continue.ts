// Continue reads the list `models` of ~/.continue/config.yaml (https://docs.continue.dev/reference,
// https://docs.continue.dev/customize/model-providers/top-level/openai).
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const continueDev: Tool = {
  id: 'continue',
  title: 'Continue',
  format: 'chat-completions',
  preferredModel: /claude|\bgpt-/,
  edits: ({ url, token, model, home, env }) => {
    const path = join(env['CONTINUE_GLOBAL_DIR'] || join(home, '.continue'), 'config.yaml');
    const lines = [
      `- name: ${JSON.stringify(`${model} (Townhall)`)}`,
      '  provider: openai',
      `  model: ${JSON.stringify(model)}`,
      `  apiBase: ${JSON.stringify(`${url}/v1`)}`,
      `  apiKey: ${JSON.stringify(token)}`,
      '  roles: [chat, edit, apply]',
    ];
    if (existsSync(path)) return [{ kind: 'block', path, lines, after: 'models:' }];
    const head = ['name: Local Config', 'version: 1.0.0', 'schema: v1', 'models:'];
    return [{ kind: 'block', path, lines: [...head, ...lines.map((line) => `  ${line}`)] }];
  },
  start: () => ['cn', 'Or open the Continue panel of your editor.'],
};
