// The members by which model routers select another model, price, address or credential, under
// their documented names.
import { describe, expect, test } from 'vitest';
import type { ProviderEntry } from '../../../../src/gateway/ai/catalog/models-file.ts';
import { refuseUnsafeMembers } from '../../../../src/gateway/ai/upstream/request-guard.ts';

const provider = { unpriced_members: [] as string[] } as ProviderEntry;

const routing: Readonly<Record<string, readonly string[]>> = {
  LiteLLM: [
    'model_list',
    'model_info',
    'model_group',
    'model_alias_map',
    'base_model',
    'user_config',
    'router_settings',
    'fallbacks',
    'default_fallbacks',
    'disable_fallbacks',
    'context_window_fallbacks',
    'context_window_fallback_dict',
    'content_policy_fallbacks',
    'specific_deployment',
    'deployment_id',
    'drop_params',
    'additional_drop_params',
    'modify_params',
    'allowed_openai_params',
    'input_cost_per_token',
    'output_cost_per_token',
    'input_cost_per_second',
    'output_cost_per_second',
    'mock_response',
    'mock_tool_calls',
    'mock_timeout',
    'mock_testing_fallbacks',
    'mock_testing_context_fallbacks',
    'mock_testing_content_policy_fallbacks',
    'litellm_params',
    'litellm_metadata',
    'litellm_credential_name',
    'litellm_session_id',
    'use_litellm_proxy',
    'proxy_server_request',
    'provider_options',
  ],
  OpenRouter: ['models', 'route', 'provider', 'plugins', 'preset'],
  Portkey: ['override_params'],
  Vercel: ['providerOptions', 'gateway', 'models'],
};

const addressesAndCredentials: Readonly<Record<string, readonly string[]>> = {
  LiteLLM: [
    'api_base',
    'base_url',
    'api_key',
    'api_version',
    'api_type',
    'custom_llm_provider',
    'organization',
    'headers',
    'extra_headers',
    'default_headers',
    'azure_ad_token',
    'azure_ad_token_provider',
    'azure_username',
    'azure_password',
    'azure_scope',
    'tenant_id',
    'client_id',
    'client_secret',
    'vertex_credentials',
    'vertex_project',
    'vertex_location',
    'aws_access_key_id',
    'aws_secret_access_key',
    'aws_session_token',
    'aws_session_name',
    'aws_profile_name',
    'aws_role_name',
    'aws_region_name',
    'aws_web_identity_token',
    'aws_external_id',
    'aws_sts_endpoint',
    'aws_bedrock_runtime_endpoint',
  ],
  Portkey: ['virtual_key', 'custom_host', 'api_key', 'authorization'],
};

const pairs = (lists: Readonly<Record<string, readonly string[]>>) =>
  Object.entries(lists).flatMap(([router, names]) => names.map((name) => [router, name] as const));

describe('the request guard', () => {
  test.each(pairs(routing))('refuses the routing member of %s: %s', (_router, name) => {
    for (const body of [{ [name]: 'x' }, { extra_body: { [name]: 'x' } }])
      expect(() => refuseUnsafeMembers(body, provider)).toThrow(
        expect.objectContaining({ status: 422, code: 'unpriced_member' }),
      );
  });

  test.each(pairs(addressesAndCredentials))(
    'refuses the address or credential of %s: %s',
    (_router, name) => {
      for (const body of [{ [name]: 'x' }, { extra_body: { [name]: 'x' } }])
        expect(() => refuseUnsafeMembers(body, provider)).toThrow(
          expect.objectContaining({ status: 400, code: 'invalid_request' }),
        );
    },
  );

  test('refuses another spelling of a routing member', () => {
    expect(() => refuseUnsafeMembers({ 'Context-Window-Fallbacks': [] }, provider)).toThrow(
      expect.objectContaining({ param: 'Context-Window-Fallbacks' }),
    );
  });
});
