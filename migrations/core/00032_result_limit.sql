-- +goose Up
-- What a kind's last statement calls when its result is larger than the kind's limit, so that nothing is committed: the COMMIT
-- is on its way already. The service knows the error by its SQLSTATE.
-- +goose StatementBegin
CREATE FUNCTION txsvc.refuse_result(bytes integer, most integer) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the result has % bytes, at most % are allowed (result_limit)', bytes, most USING ERRCODE = 'TX013';
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION txsvc.refuse_result(integer, integer);
