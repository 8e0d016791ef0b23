// The vectors are those of AWS's published test suite for Signature Version 4.
import { describe, expect, test } from 'vitest';
import { signRequest } from '../../../../src/gateway/ai/providers/credentials/sigv4.ts';

const keys = {
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
};
const scope = { region: 'us-east-1', service: 'service', now: new Date('2015-08-30T12:36:00Z') };
const address = 'https://example.amazonaws.com/';
const form = 'application/x-www-form-urlencoded';
const signatureOf = (headers: Record<string, string>) => headers['authorization']?.split('Signature=')[1];

describe('signRequest', () => {
  test.each([
    [
      'get-vanilla',
      { method: 'GET', url: address },
      '5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
    ],
    [
      'post-vanilla',
      { method: 'POST', url: address },
      '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b',
    ],
    [
      'get-vanilla-query-order-key-case',
      { method: 'GET', url: `${address}?Param2=value2&Param1=value1` },
      'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
    ],
    [
      'post-x-www-form-urlencoded',
      { method: 'POST', url: address, headers: { 'content-type': form }, body: 'Param1=value1' },
      'ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a',
    ],
  ])('matches the vector %s', (_name, request, signature) => {
    const headers = signRequest({ body: undefined, ...request }, keys, scope);
    expect(signatureOf(headers)).toBe(signature);
    expect(headers).toMatchObject({
      'x-amz-date': '20150830T123600Z',
      authorization: expect.stringContaining(
        'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=',
      ),
    });
  });

  test("matches the example of AWS's documentation", () => {
    const request = {
      method: 'GET',
      url: 'https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08',
      headers: { 'content-type': `${form}; charset=utf-8` },
      body: undefined,
    };
    const headers = signRequest(request, keys, { ...scope, service: 'iam' });
    expect(signatureOf(headers)).toBe('5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7');
  });

  test('signs the token of temporary credentials', () => {
    const headers = signRequest(
      { method: 'POST', url: address, body: undefined },
      { ...keys, sessionToken: 'AQoDYXdzEPT//////////wEXAMPLE' },
      scope,
    );
    expect(headers['x-amz-security-token']).toBe('AQoDYXdzEPT//////////wEXAMPLE');
    expect(headers['authorization']).toContain('SignedHeaders=host;x-amz-date;x-amz-security-token,');
  });
});
