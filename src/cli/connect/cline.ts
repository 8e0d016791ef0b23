// Cline's CLI keeps its providers in ~/.cline/data/settings/providers.json, as `cline auth` writes it
// (https://docs.cline.bot/cline-cli/configuration and, in github.com/cline/cline,
// sdk/packages/core/src/services/storage/provider-settings-manager.ts).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const cline: Tool = {
  id: 'cline',
  title: 'Cline CLI',
  format: 'chat-completions',
  preferredModel: /claude|\bgpt-/,
  edits: ({ url, token, model, home, env }) => {
    const folder = env['CLINE_DATA_DIR'] || join(env['CLINE_DIR'] || join(home, '.cline'), 'data');
    return [
      {
        kind: 'json',
        path: join(folder, 'settings', 'providers.json'),
        set: [
          { at: ['version'], value: 1 },
          {
            at: ['providers', 'openai-compatible'],
            value: {
              settings: { provider: 'openai-compatible', apiKey: token, model, baseUrl: `${url}/v1` },
              updatedAt: new Date().toISOString(),
              tokenSource: 'manual',
            },
          },
          { at: ['lastUsedProvider'], value: 'openai-compatible' },
        ],
      },
    ];
  },
  start: () => ['cline'],
};
