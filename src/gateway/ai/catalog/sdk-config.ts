// The catalog in the form that the AI SDK's own gateway provider asks for at `GET /v1/ai/config`.
import type { SdkConfig } from '../../../contract/gateway/types.gen.ts';
import type { CatalogModel } from './catalog.ts';

/** The models; each major version of the provider insists on its own version of the specification. */
export function sdkConfig(
  models: readonly CatalogModel[],
  userAgent: string | string[] | undefined,
): SdkConfig {
  const [, major = '3'] = /ai-sdk[/-]gateway\/(\d+)/.exec(String(userAgent ?? '')) ?? [];
  const specificationVersion = Number(major) >= 4 ? 'v4' : 'v3';
  return {
    models: models.map(({ id, name, description, provider, rates }) => ({
      id,
      name,
      description,
      specification: { specificationVersion, provider, modelId: id },
      pricing:
        rates?.input === undefined || rates.output === undefined
          ? null
          : { input: dollarsAToken(rates.input), output: dollarsAToken(rates.output) },
      modelType: 'language',
    })),
  };
}

// A rate is millionths of a dollar per million tokens, so a token costs it behind twelve decimal places.
function dollarsAToken(rate: number): string {
  const digits = String(rate).padStart(13, '0');
  const fraction = digits.slice(-12).replace(/0+$/, '');
  return fraction === '' ? digits.slice(0, -12) : `${digits.slice(0, -12)}.${fraction}`;
}
