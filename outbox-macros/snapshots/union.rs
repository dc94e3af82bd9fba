#[automatically_derived]
impl ::outbox::__private::OutboxEvent for AnyOrder {
    const TYPES: ::outbox::__private::TypeSet = ::outbox::__private::TypeSet::Any(const {
        ::outbox::__private::disjoint(
            &[
                <OrderPlaced as ::outbox::__private::OutboxEvent>::TYPES,
                <OrderPaid<Usd> as ::outbox::__private::OutboxEvent>::TYPES,
            ],
        )
    });
    fn meta(&self) -> &'static ::outbox::__private::EventMeta {
        match self {
            Self::Placed(event) => {
                <OrderPlaced as ::outbox::__private::OutboxEvent>::meta(event)
            }
            Self::Paid(event) => {
                <OrderPaid<Usd> as ::outbox::__private::OutboxEvent>::meta(event)
            }
        }
    }
    fn aggregate_id(
        &self,
    ) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::Placed(event) => {
                <OrderPlaced as ::outbox::__private::OutboxEvent>::aggregate_id(event)
            }
            Self::Paid(event) => {
                <OrderPaid<Usd> as ::outbox::__private::OutboxEvent>::aggregate_id(event)
            }
        }
    }
    fn key(&self) -> ::outbox::__private::Option<::outbox::__private::Cow<'_, str>> {
        match self {
            Self::Placed(event) => {
                <OrderPlaced as ::outbox::__private::OutboxEvent>::key(event)
            }
            Self::Paid(event) => {
                <OrderPaid<Usd> as ::outbox::__private::OutboxEvent>::key(event)
            }
        }
    }
    fn headers(
        &self,
        headers: &mut ::outbox::__private::Headers,
    ) -> ::outbox::__private::OutboxResult<()> {
        match self {
            Self::Placed(event) => {
                <OrderPlaced as ::outbox::__private::OutboxEvent>::headers(
                    event,
                    headers,
                )
            }
            Self::Paid(event) => {
                <OrderPaid<
                    Usd,
                > as ::outbox::__private::OutboxEvent>::headers(event, headers)
            }
        }
    }
    fn encode(
        &self,
        codec: &dyn ::outbox::__private::Codec,
    ) -> ::outbox::__private::OutboxResult<::outbox::__private::Vec<u8>> {
        match self {
            Self::Placed(event) => {
                <OrderPlaced as ::outbox::__private::OutboxEvent>::encode(event, codec)
            }
            Self::Paid(event) => {
                <OrderPaid<
                    Usd,
                > as ::outbox::__private::OutboxEvent>::encode(event, codec)
            }
        }
    }
}
#[automatically_derived]
impl ::outbox::__private::DecodeEvent for AnyOrder
where
    for<'__de> OrderPlaced: ::outbox::__private::DecodeInner<'__de>,
    for<'__de> OrderPaid<Usd>: ::outbox::__private::DecodeInner<'__de>,
{
    fn decode(
        message: &::outbox::__private::Message,
        codecs: &::outbox::__private::Codecs,
    ) -> ::outbox::__private::OutboxResult<Self> {
        if ::outbox::__private::answers::<OrderPlaced>(message) {
            return ::outbox::__private::Result::map(
                <OrderPlaced as ::outbox::__private::DecodeEvent>::decode(
                    message,
                    codecs,
                ),
                Self::Placed,
            );
        }
        if ::outbox::__private::answers::<OrderPaid<Usd>>(message) {
            return ::outbox::__private::Result::map(
                <OrderPaid<
                    Usd,
                > as ::outbox::__private::DecodeEvent>::decode(message, codecs),
                Self::Paid,
            );
        }
        ::outbox::__private::Result::Err(
            ::outbox::__private::unknown_type("AnyOrder", message),
        )
    }
}
::outbox::__private::inventory::submit! {
    ::outbox::__private::EventEntry::new(< AnyOrder as ::outbox::__private::OutboxEvent >
    ::TYPES)
}
