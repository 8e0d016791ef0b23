// The catalog for `GET /v1/ai/config`, in the format of the AI SDK's gateway provider.
import type { SdkConfig } from '../../../contract/gateway/types.gen.ts';
import type { CatalogModel } from './catalog.ts';

/**
 * The SDK's major version in the user agent selects the version of the specification, because the SDK refuses
 * any other version.
 */
export function toSdkConfig(
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
          : { input: dollarsPerToken(rates.input), output: dollarsPerToken(rates.output) },
      modelType: 'language',
    })),
  };
}

// A credit is a millionth of a dollar and a rate is per million tokens, so the
// decimal point moves by twelve digits.
function dollarsPerToken(rate: number): string {
  const digits = String(rate).padStart(13, '0');
  const fraction = digits.slice(-12).replace(/0+$/, '');
  return fraction === '' ? digits.slice(0, -12) : `${digits.slice(0, -12)}.${fraction}`;
}
